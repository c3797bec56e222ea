"""Clients of a cluster under faults: idempotent producers and readers that live through it
all, and write down what they did and saw."""

import contextlib
import itertools
import random
import threading
import time
from collections.abc import Callable, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.faults.history import NOWHERE, History, Outcome, Poll, Send
from tests.support.java_client import JavaClient, JavaClientError, encode_bytes

TOPIC = "faults"
PARTITIONS = 3
_FLUSH_SECONDS_MAX = 90
_IN_FLIGHT_MAX = 1_000
_NAMES = itertools.count(1)
CLIENT = {
    "log_level": 0,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
    "topic.metadata.refresh.fast.interval.ms": 50,
}


class Writer:
    """acks=all, idempotent; about `rate` records a second."""

    def __init__(
        self, client: Mapping[str, str], history: History, seed: int, rate: int = 1_500
    ) -> None:
        self.name = f"writer-{next(_NAMES)}"
        self.acknowledged = 0
        # When each partition was last acknowledged, and its longest silence.
        self.last: dict[int, float] = {}
        self.gaps: dict[int, float] = {}
        self.errors: list[str] = []
        self._history = history
        self._random = random.Random(seed)
        self._pause = 10 / rate
        self._number = 0
        self._in_flight = 0
        self._stop = threading.Event()
        self._producer = Producer(
            {
                **client,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": 120_000,
                **CLIENT,
            }
        )
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            if self._in_flight < _IN_FLIGHT_MAX:
                for _ in range(10):
                    self._send()
            self._producer.poll(self._pause)

    def _send(self) -> None:
        self._number += 1
        partition = self._random.randrange(PARTITIONS)
        send = Send(
            self.name,
            f"{self.name}:{self._number}",
            partition,
            time.monotonic(),
            float("inf"),
            Outcome.UNKNOWN,
        )
        self._history.sends.append(send)
        self._in_flight += 1
        padding = "x" * self._random.choice((0, 10, 100, 1000))
        self._producer.produce(
            TOPIC,
            f"{send.value}|{padding}".encode(),
            partition=partition,
            on_delivery=self._delivered(send),
        )

    def _delivered(self, send: Send) -> Callable[[KafkaError | None, Message], None]:
        def report(error: KafkaError | None, message: Message) -> None:
            self._in_flight -= 1
            now = time.monotonic()
            if error is not None:
                self.errors.append(f"{send.value}: {error}")
                return
            offset = message.offset()
            send.completed, send.outcome = now, Outcome.OK
            send.offset = NOWHERE if offset is None else offset
            self.acknowledged += 1
            last = self.last.get(send.partition, now)
            self.gaps[send.partition] = max(self.gaps.get(send.partition, 0.0), now - last)
            self.last[send.partition] = now

        return report

    def forget_gaps(self) -> None:
        self.gaps.clear()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        left = self._producer.flush(_FLUSH_SECONDS_MAX)
        assert left == 0, f"{left} messages of {self.name} were never answered"


class JavaWriter:
    """The Java client, acks=all and idempotent: some hundred records, then the next hundred."""

    RECORDS = 300

    def __init__(self, java: JavaClient, history: History, seed: int) -> None:
        self.name = f"java-{next(_NAMES)}"
        self.acknowledged = 0
        self.errors: list[str] = []
        self._java = java
        self._history = history
        self._random = random.Random(seed)
        self._number = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            partition = self._random.randrange(PARTITIONS)
            began = time.monotonic()
            sends = []
            for place in range(self.RECORDS):
                self._number += 1
                value = f"{self.name}:{self._number}"
                # In the order of sending, though all in one call.
                invoked = began + place * 1e-9
                unknown = Outcome.UNKNOWN
                sends.append(Send(self.name, value, partition, invoked, float("inf"), unknown))
            self._history.sends += sends
            messages = [
                {"key": None, "value": encode_bytes(send.value.encode()), "headers": []}
                for send in sends
            ]
            try:
                answer = self._java.call(
                    "produce", topic=TOPIC, partition=partition, codec="none", messages=messages
                )
            except JavaClientError as error:
                self.errors.append(f"{self.name}: {error}")
                continue
            now = time.monotonic()
            for send, offset in zip(sends, answer["offsets"], strict=True):
                send.completed, send.outcome, send.offset = now, Outcome.OK, int(offset)
            self.acknowledged += len(sends)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


class Reader:
    """Follows all partitions from where the history begins."""

    def __init__(self, client: Mapping[str, str], history: History) -> None:
        self.name = f"reader-{next(_NAMES)}"
        self.errors: list[str] = []
        self._history = history
        self._is_first = set(range(PARTITIONS))
        self._stop = threading.Event()
        self._consumer = _consumer(client)
        self._consumer.assign(
            [TopicPartition(TOPIC, p, at) for p, at in history.first_offsets.items()]
        )
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            got: dict[int, list[tuple[int, str]]] = {}
            for message in self._consumer.consume(1000, timeout=0.05):
                if message.error() is not None:
                    self.errors.append(str(message.error()))
                    continue
                got.setdefault(message.partition(), []).append((message.offset(), _value(message)))
            for partition, records in got.items():
                is_first = partition in self._is_first
                self._is_first.discard(partition)
                self._history.polls.append(Poll(self.name, partition, records, is_first))

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()


def _value(message: Message) -> str:
    value = message.value()
    assert isinstance(value, bytes)
    return value.decode().partition("|")[0]


def _consumer(client: Mapping[str, str]) -> Consumer:
    return Consumer(
        {
            **client,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "fetch.wait.max.ms": 50,
            **CLIENT,
        }
    )


def end_offsets(client: Mapping[str, str]) -> dict[int, int]:
    consumer = _consumer(client)
    try:
        return _end_offsets(consumer)
    finally:
        consumer.close()


def _end_offsets(consumer: Consumer) -> dict[int, int]:
    deadline = time.monotonic() + 60
    while True:
        try:
            return {
                partition: consumer.get_watermark_offsets(
                    TopicPartition(TOPIC, partition), timeout=10
                )[1]
                for partition in range(PARTITIONS)
            }
        except KafkaException:
            # A leader that is new does not say before it knows.
            assert time.monotonic() < deadline, "no end offsets"
            time.sleep(0.1)
            # Of an answer without a leader librdkafka asks for offsets no more, until it is told.
            with contextlib.suppress(KafkaException):
                consumer.list_topics(TOPIC, timeout=5)


def read_final(client: Mapping[str, str], history: History) -> None:
    """Everything, by a fresh consumer, up to an end that covers whatever was acknowledged."""
    consumer = _consumer(client)
    try:
        ends = _end_offsets(consumer)
        left = {p: end for p, end in ends.items() if end > history.first_offsets[p]}
        consumer.assign([TopicPartition(TOPIC, p, history.first_offsets[p]) for p in left])
        give_up = time.monotonic() + 90
        while left:
            assert time.monotonic() < give_up, f"the last reader stopped before {left}"
            for message in consumer.consume(1000, timeout=0.2):
                if message.error() is not None:
                    raise KafkaException(message.error())
                partition, offset = message.partition(), message.offset()
                history.final[partition, offset] = _value(message)
                if offset + 1 >= left.get(partition, 1 << 62):
                    del left[partition]
    finally:
        consumer.close()


def wait_until_acknowledged(writers: list[Writer], count: int, seconds_max: float = 60) -> None:
    """So many more, of every partition at least one."""
    before = sum(writer.acknowledged for writer in writers)
    began = time.monotonic()
    while True:
        now = sum(writer.acknowledged for writer in writers)
        served = {p for writer in writers for p, at in writer.last.items() if at > began}
        if now - before >= count and len(served) == PARTITIONS:
            return
        assert time.monotonic() < began + seconds_max, (
            f"only {now - before} of {count} acknowledged in {seconds_max} s, partitions {served}"
        )
        time.sleep(0.01)
