"""Rows for one partition: which are in which batch, and which batches are in flight.

Several batches of a partition may be in flight. The broker accepts them only in the order
of their sequence numbers, so after one that failed no other was accepted, or it is known
when it comes again. Every response after a failure is ignored, and when the last of them has
arrived the same batches are sent once more, in order. Nothing here sends anything.
"""

from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Final

from millstream.errors import KafkaCode
from millstream.model import Codec, TopicPartition
from millstream.records.rows import Producer, build_batch_of_rows
from millstream.spark.routing import Routed

# How many batches of a producer a broker remembers, to recognise repetitions.
IN_FLIGHT_MAX: Final = 5
_TAKEN = (KafkaCode.NONE, KafkaCode.DUPLICATE_SEQUENCE_NUMBER)
_TOO_LARGE = (KafkaCode.MESSAGE_TOO_LARGE, KafkaCode.RECORD_LIST_TOO_LARGE)


class Verdict(Enum):
    """What a response means for its batch."""

    TAKEN = 1
    # It came after a failure and says nothing.
    IGNORED = 2
    # The same rows go in two or more batches.
    SPLIT = 3
    # One row is more than the topic allows.
    ROW_TOO_LARGE = 4
    FAILED = 5


@dataclass(frozen=True, slots=True)
class Batch:
    """Encoded once: the same bytes at every try."""

    header: bytes
    records: bytes
    base_sequence: int
    # Which of the rows it was made from: `[start, end)` of `routed`.
    routed: Routed
    start: int
    end: int

    @property
    def count(self) -> int:
        return self.end - self.start

    @property
    def size_bytes(self) -> int:
        return len(self.header) + len(self.records)


class PartitionQueue:
    def __init__(
        self, partition: TopicPartition, producer: Producer, codec: Codec, batch_bytes_max: int
    ) -> None:
        self.partition = partition
        self.rows_taken = 0
        # Of rows that are not accepted yet.
        self.held_bytes = 0
        self._producer = producer
        self._codec = codec
        self._batch_bytes_max = batch_bytes_max
        # What is not completely encoded, and where in it the next batch begins.
        self._rows: deque[Routed] = deque()
        self._index = 0
        self._start = 0
        # Encoded and not accepted, oldest first.
        self._batches: deque[Batch] = deque()
        self._next_sequence = 0
        # Responses that are due: to the first that many of the batches, unless one has failed.
        self._due_count = 0
        self._has_failed = False
        # A broker that does not know a producer accepts any sequence number. So the first batch
        # goes alone, and also the first after a failure, which others may have followed.
        self._is_known = False

    @property
    def is_on_its_way(self) -> bool:
        return self._due_count > 0

    @property
    def can_send(self) -> bool:
        if self._has_failed or self._due_count >= self._in_flight_max:
            return False
        return self._due_count < len(self._batches) or self._index < len(self._rows)

    @property
    def _in_flight_max(self) -> int:
        is_idempotent = self._producer.producer_id >= 0
        return IN_FLIGHT_MAX if is_idempotent and self._is_known else 1

    def add(self, routed: Routed) -> None:
        self._rows.append(routed)
        self.held_bytes += routed.size_bytes

    def peek(self, now_ms: int) -> Batch:
        """The batch to send next; it counts as sent after `mark_sent`."""
        assert self.can_send
        if self._due_count == len(self._batches):
            self._batches.append(self._encode(now_ms))
        return self._batches[self._due_count]

    def mark_sent(self) -> None:
        self._due_count += 1

    def take(self, code: KafkaCode) -> Verdict:
        """The response to the oldest batch without one."""
        assert self._due_count > 0
        self._due_count -= 1
        if self._has_failed:
            self._has_failed = self._due_count > 0
            return Verdict.IGNORED
        if code in _TAKEN:
            self._is_known = True
            self._move_on()
            return Verdict.TAKEN
        self._fail()
        if code not in _TOO_LARGE:
            return Verdict.FAILED
        oldest = self._batches[0]
        if oldest.count == 1:
            return Verdict.ROW_TOO_LARGE
        # The topic allows less than usual.
        self._batch_bytes_max = max(1, oldest.size_bytes // 2)
        self._begin_again_at(oldest)
        return Verdict.SPLIT

    def lose_answers(self) -> None:
        """No response will come any more: the connection broke."""
        self._due_count = 0
        self._fail()

    @property
    def oldest(self) -> Batch:
        return self._batches[0]

    def _fail(self) -> None:
        self._has_failed = self._due_count > 0
        self._is_known = False

    def _begin_again_at(self, batch: Batch) -> None:
        self._index, self._start = 0, batch.start
        self._next_sequence = batch.base_sequence
        self._batches.clear()

    def _move_on(self) -> None:
        batch = self._batches.popleft()
        self.rows_taken += batch.count
        if batch.end == len(batch.routed.rows):
            self.held_bytes -= self._rows.popleft().size_bytes
            self._index -= 1

    def _encode(self, now_ms: int) -> Batch:
        routed, start = self._rows[self._index], self._start
        records, end = routed.encoder.encode(routed.rows, start, self._batch_bytes_max)
        sequence = self._next_sequence
        is_idempotent = self._producer.producer_id >= 0
        header, payload = build_batch_of_rows(
            records,
            end - start,
            timestamp_ms=now_ms,
            codec=self._codec,
            producer=self._producer,
            base_sequence=sequence if is_idempotent else -1,
        )
        self._next_sequence = (sequence + end - start) & 0x7FFFFFFF
        self._start = end
        if end == len(routed.rows):
            self._index, self._start = self._index + 1, 0
        return Batch(header, payload, sequence, routed, start, end)
