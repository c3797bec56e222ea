"""Committed transactions per second, of one, a hundred and ten thousand records.

One producer, one transaction after the other: what an exactly-once job does. First as bare
frames, then with librdkafka, which looks for new partitions of a transaction once in a
millisecond: with small transactions it waits for itself. Page cache against page cache; our
node as users get it, which waits for the disk three times per transaction, is shown beside it.
"""

import contextlib
import time
import uuid
from collections.abc import Callable
from functools import partial

from confluent_kafka import Producer

from bench.bench import Bench
from bench.brokers import Broker
from bench.rows import Row, at_least
from bench.transacting import TransactionalLoad

PART = "transactions"
# Records in a transaction, and what the ratio has to reach.
_SIZES = ((1, 3.0), (100, 3.0), (10_000, 1.5))
_RECORD = b"x" * 100
_SECONDS_MAX = 60


def run(bench: Bench) -> list[Row]:
    rows = []
    for records, target in _SIZES:
        size = f"{records:,} {'record' if records == 1 else 'records'}"
        for load, rate in (("raw", _raw_rate), ("librdkafka", _librdkafka_rate)):
            name = f"{load}, transactions of {size}"
            found = bench.compare(name, partial(rate, bench, records))
            rows.append(Row(PART, name, "/s", *found.values(float), at_least(target)))
        synced = [_raw_rate(bench, records, bench.synced) for _ in range(bench.rounds)]
        rows.append(Row(PART, f"raw, transactions of {size}, synced", "/s", synced))
    return rows


def _raw_rate(bench: Bench, records: int, broker: Broker) -> float:
    with bench.topic(broker) as topic:
        name = uuid.uuid4().hex
        load = TransactionalLoad(broker.bootstrap, topic, records=records, transactional_id=name)
        with contextlib.closing(load):
            return _per_second(bench, load.commit_one)


def _librdkafka_rate(bench: Bench, records: int, broker: Broker) -> float:
    with bench.topic(broker) as topic:
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "transactional.id": uuid.uuid4().hex,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        producer.init_transactions(_SECONDS_MAX)
        return _per_second(bench, partial(_transaction, producer, topic, records))


def _per_second(bench: Bench, commit_one: Callable[[], None]) -> float:
    """How often it can be done; the first time does not count."""
    commit_one()
    began = time.perf_counter()
    count = 0
    while time.perf_counter() - began < bench.round_seconds:
        commit_one()
        count += 1
    return count / (time.perf_counter() - began)


def _transaction(producer: Producer, topic: str, records: int) -> None:
    producer.begin_transaction()
    for _ in range(records):
        producer.produce(topic, _RECORD)
    producer.commit_transaction(_SECONDS_MAX)
