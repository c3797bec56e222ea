"""Several librdkafka clients in one process, with the options they have by themselves.

    python -m bench.librdkafka produce BOOTSTRAP TOPIC PARTITIONS PRODUCERS SECONDS
    python -m bench.librdkafka tail BOOTSTRAP TOPIC PARTITIONS MEMBERS RATE SECONDS

Runs as a program, so that it can have a core to itself. It prints `begin` when its clients are
connected and warm and `end`, with the records and the seconds, when the last record is
acknowledged or consumed: who watches the broker looks at it then.
"""

import sys
import time
import uuid
from collections.abc import Callable
from threading import Event, Thread
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer

RECORD_BYTES = 100
# Records in flight per producer: with few of them, requests are small.
_IN_FLIGHT = 48
_WARM_UP_SECONDS = 0.7
_SECONDS_MAX = 120.0
_VALUE = b"v" * RECORD_BYTES


def main() -> None:
    kind, bootstrap, topic, *numbers = sys.argv[1:]
    if kind == "produce":
        partitions, producers, seconds = numbers
        produce(bootstrap, topic, int(partitions), int(producers), float(seconds))
    else:
        partitions, members, rate, seconds = numbers
        tail(bootstrap, topic, int(partitions), int(members), int(rate), float(seconds))


def _say_end(records: int, began: float) -> None:
    print(f"end {records} {time.perf_counter() - began}", flush=True)


def _producer(bootstrap: str) -> Producer:
    # Idempotent, and so acks=all: what Java's producer is by default.
    settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0}
    return Producer(settings)


class _Sender:
    """One producer that keeps some records in flight, round robin over the partitions."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._producer = _producer(bootstrap)
        self._topic = topic
        self._partitions = partitions
        self._sent = 0
        self.acknowledged = 0

    def send(self) -> None:
        while self._sent - self.acknowledged < _IN_FLIGHT:
            self._producer.produce(
                self._topic,
                _VALUE,
                partition=self._sent % self._partitions,
                on_delivery=self._delivered,
            )
            self._sent += 1
        self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, _: object) -> None:
        assert error is None, error
        self.acknowledged += 1

    def finish(self) -> None:
        self._producer.flush(_SECONDS_MAX)


def produce(bootstrap: str, topic: str, partitions: int, producers: int, seconds: float) -> None:
    senders = [_Sender(bootstrap, topic, partitions) for _ in range(producers)]
    _send_for(senders, _WARM_UP_SECONDS)
    before = sum(sender.acknowledged for sender in senders)
    print("begin", flush=True)
    began = time.perf_counter()
    _send_for(senders, seconds)
    _say_end(sum(sender.acknowledged for sender in senders) - before, began)
    for sender in senders:
        sender.finish()


def _send_for(senders: list[_Sender], seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        for sender in senders:
            sender.send()


class _Member:
    """One consumer of the group, in a thread."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        self.owned = 0
        self.received = 0
        self._is_over = Event()
        self._consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)
        self._thread = Thread(target=self._run)
        self._thread.start()

    def _assigned(self, _: Consumer, partitions: list[Any]) -> None:
        self.owned = len(partitions)

    def _revoked(self, _: Consumer, __: list[Any]) -> None:
        self.owned = 0

    def _run(self) -> None:
        while not self._is_over.is_set():
            found = self._consumer.consume(100, 0.1)
            self.received += sum(message.error() is None for message in found)
        self._consumer.close()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()


def tail(
    bootstrap: str, topic: str, partitions: int, members: int, rate: int, seconds: float
) -> None:
    """A group that reads what one producer sends at a fixed rate. Without members, others do."""
    name = uuid.uuid4().hex
    group = [_Member(bootstrap, name, topic) for _ in range(members)]
    _wait(lambda: members == 0 or sum(member.owned for member in group) == partitions)
    producer = _producer(bootstrap)
    # So many that every partition has been read from.
    first = max(rate // 2, partitions)
    _pace(producer, topic, partitions, rate=rate, count=first)
    _wait(lambda: not group or sum(member.received for member in group) >= first)
    print("begin", flush=True)
    began = time.perf_counter()
    count = int(rate * seconds)
    _pace(producer, topic, partitions, rate=rate, count=count)
    _wait(lambda: not group or sum(member.received for member in group) >= first + count)
    _say_end(count, began)
    for member in group:
        member.stop()


def _pace(producer: Producer, topic: str, partitions: int, *, rate: int, count: int) -> None:
    began = time.perf_counter()
    sent = 0
    while sent < count:
        due = min(count, int((time.perf_counter() - began) * rate) + 1)
        while sent < due:
            producer.produce(topic, _VALUE, partition=sent % partitions)
            sent += 1
        producer.poll(0)
        time.sleep(0.001)
    left = producer.flush(_SECONDS_MAX)
    assert left == 0, f"{left} records were not acknowledged"


def _wait(is_done: Callable[[], bool]) -> None:
    deadline = time.perf_counter() + _SECONDS_MAX
    while not is_done():
        assert time.perf_counter() < deadline, "not all records were consumed"
        time.sleep(0.002)


if __name__ == "__main__":
    main()
