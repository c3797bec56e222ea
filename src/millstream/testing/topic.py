"""A topic as a test sees it: put records in, look what is there, wait for more."""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Self

from millstream.lazy_dataclass import dataclass
from millstream.testing.asking import answered

_REQUEST_SECONDS_MAX = 20.0
# A read ends where the topic ended when it began, so this only bounds a node that hangs.
_READ_SECONDS_MAX = 30.0

Content = bytes | str | None
# A value, a key and a value, or a key, a value and headers.
Producible = Content | tuple[Content, Content] | tuple[Content, Content, Mapping[str, Content]]


@dataclass(frozen=True, slots=True)
class Record:
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = field(default_factory=tuple)

    @property
    def text(self) -> str:
        return "" if self.value is None else self.value.decode()

    def json(self) -> Any:
        return None if self.value is None else json.loads(self.value)


class Topic(str):
    """Its own name, so that every client takes it as one. `settings` are those of a
    confluent-kafka client."""

    _settings: dict[str, Any]

    def __new__(cls, name: str, settings: Mapping[str, Any]) -> Self:
        topic = super().__new__(cls, name)
        topic._settings = {**settings, "log_level": 0}
        return topic

    @property
    def name(self) -> str:
        return str(self)

    def produce(self, records: Iterable[Producible], *, partition: int = -1) -> None:
        """All of them are acknowledged when this returns."""
        from confluent_kafka import KafkaException, Producer

        if isinstance(records, str | bytes):
            raise TypeError(f"produce takes a list of records: [{records!r:.40}]")
        failed: list[Any] = []
        producer = Producer({**self._settings, "acks": "all", "linger.ms": 0})
        for record in records:
            key, value, headers = _parts(record)
            producer.produce(
                self.name,
                value,
                key,
                partition=partition,
                headers=headers,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
        left = producer.flush(_REQUEST_SECONDS_MAX)
        if failed:
            raise KafkaException(failed[0])
        if left:
            raise TimeoutError(f"{left} records of {self.name} were not acknowledged")

    def end_offsets(self) -> dict[int, int]:
        """By partition, where the next record will be."""
        consumer = self._consumer()
        try:
            return {place: end for place, (_, end) in self._watermarks(consumer).items()}
        finally:
            consumer.close()

    def records(self, *, since: int = 0) -> list[Record]:
        """Those that are there now, from this offset of each partition; oldest first."""
        from confluent_kafka import TopicPartition

        consumer = self._consumer()
        try:
            marks = self._watermarks(consumer)
            left = {place: end for place, (first, end) in marks.items() if max(first, since) < end}
            starts = [
                TopicPartition(self.name, place, max(marks[place][0], since)) for place in left
            ]
            consumer.assign(starts)
            found = _read_until(consumer, left)
        finally:
            consumer.close()
        return sorted(
            found, key=lambda record: (record.timestamp_ms, record.partition, record.offset)
        )

    def wait(
        self,
        count: int = 1,
        *,
        timeout: float = 10,
        where: Callable[[Record], bool] = lambda record: True,
    ) -> list[Record]:
        """The records, once this many are there. Raises TimeoutError, which shows what is."""
        deadline = time.monotonic() + timeout
        while True:
            everything = self.records()
            found = [record for record in everything if where(record)]
            if len(found) >= count:
                return found
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{self.name} has {len(found)} of {count} records after {timeout} s"
                    + _listed(everything)
                )
            time.sleep(0.02)

    def _consumer(self) -> Any:
        from confluent_kafka import Consumer

        return Consumer(
            {
                **self._settings,
                "group.id": "millstream-testing",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
            }
        )

    def _watermarks(self, consumer: Any) -> dict[int, tuple[int, int]]:
        from confluent_kafka import TopicPartition

        def ask() -> dict[int, tuple[int, int]]:
            topics = consumer.list_topics(self.name, timeout=_REQUEST_SECONDS_MAX).topics
            return {
                index: consumer.get_watermark_offsets(
                    TopicPartition(self.name, index), timeout=_REQUEST_SECONDS_MAX
                )
                for index in topics[self.name].partitions
            }

        return answered(ask)


def _parts(record: Producible) -> tuple[Content, Content, list[tuple[str, Content]]]:
    if not isinstance(record, tuple):
        return None, record, []
    key, value = record[0], record[1]
    headers = dict(record[2]) if len(record) == 3 else {}
    return key, value, list(headers.items())


def _read_until(consumer: Any, ends: dict[int, int]) -> list[Record]:
    """Up to these offsets. Gaps of transactions and compaction end at the partition's end."""
    from confluent_kafka import KafkaError

    found: list[Record] = []
    left = dict(ends)
    deadline = time.monotonic() + _READ_SECONDS_MAX
    while left and time.monotonic() < deadline:
        for message in consumer.consume(500, timeout=0.5):
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                left.pop(message.partition(), None)
            elif error is None and message.offset() < ends[message.partition()]:
                found.append(_record(message))
                if message.offset() == ends[message.partition()] - 1:
                    left.pop(message.partition(), None)
    return found


def _record(message: Any) -> Record:
    return Record(
        message.topic(),
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
    )


def _listed(records: Sequence[Record]) -> str:
    lines = [
        f"\n  {record.partition}/{record.offset} {record.key!r}: {record.value!r:.100}"
        for record in records[-10:]
    ]
    return ". The last ones:" + "".join(lines) if lines else "; it is empty"
