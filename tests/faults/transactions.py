"""A transactional producer that lives through kills, and what readers must find of it.

Each transaction writes to many partitions. What a reader of committed records finds afterwards is
all of every committed transaction, nothing of an aborted one, and all or nothing of one whose end
the client was not told.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.faults.load import QUICK, QUIET

TOPIC: Final = "faults-in-transactions"
PARTITIONS: Final = 12
TRANSACTIONAL_ID: Final = "faults"
_SECONDS: Final = 60
_RECORDS_MAX: Final = 40
_ABORTED_SHARE: Final = 0.2


@dataclass
class Transactions:
    """By name, how many records each transaction wrote."""

    committed: dict[str, int] = field(default_factory=dict)
    aborted: dict[str, int] = field(default_factory=dict)
    # Whether they are committed was not answered.
    unknown: dict[str, int] = field(default_factory=dict)

    @property
    def committed_records(self) -> int:
        return sum(self.committed.values())


def create_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    for future in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
        future.result(20)


class TransactionalWriter:
    """One producer in a thread, one transaction after the other."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        self.transactions = Transactions()
        self._random = random.Random(seed)
        self._seed = seed
        self._settings = {
            "bootstrap.servers": bootstrap,
            "transactional.id": TRANSACTIONAL_ID,
            "linger.ms": 1,
            **QUICK,
            **QUIET,
        }
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="writer-transactions", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Let the last transaction end."""
        self._stop.set()
        self._thread.join(4 * _SECONDS)
        assert not self._thread.is_alive(), "a transaction did not end"
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            producer = self._new_producer()
            number = 0
            while not self._stop.is_set():
                name = f"{self._seed}.{number}"
                number += 1
                if not self._transaction(producer, name):
                    producer = self._new_producer()
        except BaseException as error:
            self._failure = error

    def _new_producer(self) -> Producer:
        """It fences the one before, and ends what that left open."""
        producer = Producer(self._settings)
        _retried(lambda: producer.init_transactions(_SECONDS))
        return producer

    def _transaction(self, producer: Producer, name: str) -> bool:
        """False if this producer can do no more."""
        count = self._random.randint(1, _RECORDS_MAX)
        is_committed = self._random.random() >= _ABORTED_SHARE
        # Unless it is known better: until a commit is sent, it can only be aborted.
        self.transactions.aborted[name] = count
        try:
            producer.begin_transaction()
            for index in range(count):
                partition = self._random.randrange(PARTITIONS)
                producer.produce(TOPIC, f"{name}:{index}".encode(), partition=partition)
            if not is_committed:
                _retried(lambda: producer.abort_transaction(_SECONDS))
                return True
            # A commit that is sent may be carried out, whatever becomes of its answer.
            self.transactions.unknown[name] = self.transactions.aborted.pop(name)
            _retried(lambda: producer.commit_transaction(_SECONDS))
            self.transactions.committed[name] = self.transactions.unknown.pop(name)
        except KafkaException as failed:
            if not failed.args[0].txn_requires_abort():
                return False
            _retried(lambda: producer.abort_transaction(_SECONDS))
            # An abort that was answered: the commit before it had no effect.
            self.transactions.unknown.pop(name, None)
            self.transactions.aborted[name] = count
        return True


def _retried(call: Callable[[], object]) -> None:
    while True:
        try:
            call()
            return
        except KafkaException as failed:
            if not failed.args[0].retriable():
                raise


def end_offsets(bootstrap: str) -> dict[int, int]:
    consumer = _consumer(bootstrap)
    try:
        places = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
        return {
            place.partition: consumer.get_watermark_offsets(place, timeout=20)[1]
            for place in places
        }
    finally:
        consumer.close()


def read_committed(bootstrap: str, start: Mapping[int, int]) -> Counter[str]:
    """Every value from `start` to the end that a reader of committed records is shown."""
    consumer = _consumer(bootstrap)
    found: Counter[str] = Counter()
    try:
        consumer.assign([TopicPartition(TOPIC, *place) for place in start.items()])
        left = set(start)
        give_up = time.monotonic() + _SECONDS
        while left:
            assert time.monotonic() < give_up, f"the reader of transactions stopped before {left}"
            for message in consumer.consume(1000, timeout=0.2):
                error = message.error()
                if error is None:
                    found[message.value().decode()] += 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
                else:
                    raise KafkaException(error)
        return found
    finally:
        consumer.close()


def _consumer(bootstrap: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
            **QUIET,
        }
    )


def problems(transactions: Transactions, found: Counter[str]) -> list[str]:
    """Everything wrong with what a reader of committed records found."""
    bad = [f"duplicate: {value} of a transaction" for value, count in found.items() if count > 1]
    seen = Counter(value.partition(":")[0] for value in found)
    for name, count in transactions.committed.items():
        if seen[name] != count:
            bad.append(f"lost: {seen[name]} of {count} records of the committed {name}")
    for name in transactions.aborted:
        if seen[name]:
            bad.append(f"shown: {seen[name]} records of the aborted {name}")
    for name, count in transactions.unknown.items():
        if seen[name] not in (0, count):
            bad.append(f"torn: {seen[name]} of {count} records of {name}")
    return bad
