"""Two writers on one topic, all along the faults, and a fresh reader to check.

`all` is an idempotent producer with acks=all that lives through every fault and retries;
`one` sends with acks=1 and never retries, for a retry without idempotence may duplicate.
"""

import random
import threading
import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.faults.ledger import Ledger, Place, value_of

TOPIC = "faults"
PARTITIONS = 3
NUMBERS_PER_ROUND = 10_000_000
QUIET = {"log_level": 0, "socket.keepalive.enable": True}
# For clients that live through a restart.
QUICK = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
}


def create_topic(bootstrap: str, *, partitions: int = PARTITIONS) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    for future in admin.create_topics([NewTopic(TOPIC, partitions, 1)]).values():
        future.result(20)


class Writer:
    """One producer in a thread; reports into the ledger."""

    def __init__(
        self,
        name: str,
        bootstrap: str,
        ledger: Ledger,
        seed: int,
        partitions: int,
        **options: object,
    ) -> None:
        self.name = name
        self._partitions = partitions
        self._ledger = ledger
        self._random = random.Random(seed)
        # No two rounds send the same value: a reader may look into the round before.
        self._number = seed * NUMBERS_PER_ROUND
        self._in_flight = 0
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "linger.ms": 2,
                "message.timeout.ms": 120_000,
                **QUICK,
                **QUIET,
                **options,
            }
        )
        self._thread = threading.Thread(target=self._run, name=f"writer-{name}", daemon=True)
        self._thread.start()

    @property
    def in_flight(self) -> int:
        return self._in_flight

    def _run(self) -> None:
        while not self._stop.is_set():
            if self._in_flight > 2000:
                self._producer.poll(0.01)
                continue
            for _ in range(self._random.randint(1, 50)):
                self._send()
            self._producer.poll(0)
            if self._random.random() < 0.2:
                self._producer.poll(0.001)

    def _send(self) -> None:
        value = value_of(self.name, self._number)
        self._number += 1
        padding = "x" * self._random.choice((0, 10, 100, 1000))
        self._ledger.sent += 1
        self._in_flight += 1
        self._producer.produce(
            TOPIC,
            f"{value}|{padding}".encode(),
            partition=self._random.randrange(self._partitions),
            on_delivery=self._delivered(value),
        )

    def _delivered(self, value: str) -> Callable[[KafkaError | None, Message], None]:
        def report(error: KafkaError | None, message: Message) -> None:
            self._in_flight -= 1
            if error is None:
                self._ledger.acknowledge(value, message.partition(), message.offset())
            else:
                self._ledger.unknown.add(value)

        return report

    def stop(self) -> None:
        """Stop sending and wait until everything is answered one way or the other."""
        self._stop.set()
        self._thread.join()
        left = self._producer.flush(60)
        assert left == 0, f"{left} messages of {self.name} were never answered"


def writers(
    bootstrap: str, ledger: Ledger, seed: int, *, partitions: int = PARTITIONS
) -> list[Writer]:
    durable = {"acks": "all", "enable.idempotence": True}
    single = {"acks": 1, "message.send.max.retries": 0, "message.timeout.ms": 5000}
    return [
        Writer("all", bootstrap, ledger, seed, partitions, **durable),
        Writer("one", bootstrap, ledger, seed + 1, partitions, **single),
    ]


def wait_until_acknowledged(
    ledger: Ledger, count: int, seconds_max: float = 60, of: tuple[str, ...] = ("all", "one")
) -> None:
    """So many of these writers."""
    end = time.monotonic() + seconds_max
    while (now := sum(ledger.counts[writer] for writer in of)) < count:
        assert time.monotonic() < end, f"only {now} of {count} acknowledged in {seconds_max} s"
        time.sleep(0.005)


def end_offsets(bootstrap: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", **QUIET})
    try:
        return _end_offsets(consumer)
    finally:
        consumer.close()


def _end_offsets(consumer: Consumer) -> dict[int, int]:
    partitions = consumer.list_topics(TOPIC, timeout=20).topics[TOPIC].partitions
    return {
        partition: consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=20)[1]
        for partition in sorted(partitions)
    }


def read_all(bootstrap: str, start: dict[int, int]) -> tuple[dict[Place, str], dict[int, int]]:
    """Everything from `start` to the end with a fresh consumer, and where that end is."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "fetch.wait.max.ms": 50,
            **QUIET,
        }
    )
    try:
        ends = _end_offsets(consumer)
        left = {p: end for p, end in ends.items() if end > start.get(p, 0)}
        consumer.assign([TopicPartition(TOPIC, p, start.get(p, 0)) for p in left])
        found: dict[Place, str] = {}
        give_up = time.monotonic() + 60
        while left:
            assert time.monotonic() < give_up, f"the reader stopped before {left}"
            for message in consumer.consume(1000, timeout=0.2):
                if message.error() is not None:
                    raise KafkaException(message.error())
                place = (message.partition(), message.offset())
                assert place not in found, f"{place} delivered twice"
                found[place] = message.value().decode().partition("|")[0]
                if message.offset() + 1 >= left.get(message.partition(), 1 << 62):
                    del left[message.partition()]
        for partition, end in ends.items():
            offsets = sorted(o for p, o in found if p == partition)
            expected = list(range(start.get(partition, 0), end))
            assert offsets == expected, f"partition {partition} has gaps"
        return found, ends
    finally:
        consumer.close()
