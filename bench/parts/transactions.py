"""Committed transactions per second, of one, a hundred and ten thousand records.

One producer (librdkafka), one transaction after the other: what an exactly-once job does.
Page cache against page cache; our node as users get it, which waits for the disk three
times per transaction, is shown beside it.
"""

import time
import uuid
from functools import partial

from confluent_kafka import Producer

from bench.bench import Bench
from bench.brokers import Broker
from bench.rows import Row, at_least

PART = "transactions"
# Records in a transaction, and what the ratio has to reach.
_SIZES = ((1, 3.0), (100, 3.0), (10_000, 1.5))
_RECORD = b"x" * 100
_SECONDS_MAX = 60


def run(bench: Bench) -> list[Row]:
    rows = []
    for records, target in _SIZES:
        noun = "record" if records == 1 else "records"
        name = f"transactions of {records:,} {noun}"
        found = bench.compare(name, partial(_rate, bench, records))
        rows.append(Row(PART, name, "/s", *found.values(float), at_least(target)))
        synced = [_rate(bench, records, bench.synced) for _ in range(bench.rounds)]
        rows.append(Row(PART, f"{name}, synced", "/s", synced))
    return rows


def _rate(bench: Bench, records: int, broker: Broker) -> float:
    """Transactions committed per second of one producer."""
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
        _transaction(producer, topic, records)
        began = time.perf_counter()
        count = 0
        while time.perf_counter() - began < bench.round_seconds:
            _transaction(producer, topic, records)
            count += 1
        return count / (time.perf_counter() - began)


def _transaction(producer: Producer, topic: str, records: int) -> None:
    producer.begin_transaction()
    for _ in range(records):
        producer.produce(topic, _RECORD)
    producer.commit_transaction(_SECONDS_MAX)
