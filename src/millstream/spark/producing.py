"""Writing to partitions: batches in order, each once, whatever happens to the brokers.

Per partition one batch is on its way at a time, with the sequence number that lets the
broker recognise a repeat. Requests to several leaders are on their way together, and
while they are, the caller prepares more rows.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from millstream.clock import SystemClock
from millstream.errors import KafkaCode, KafkaError, ProtocolError
from millstream.model import Codec, TopicPartition
from millstream.records.rows import Producer, build_batch_of_rows
from millstream.spark.cluster import (
    PASSING_CODES,
    PAUSE_SECONDS_MAX,
    PAUSE_SECONDS_MIN,
    Cluster,
)
from millstream.spark.connection import Address, Connection, connect, release
from millstream.spark.failure import SourceError, Unreachable
from millstream.spark.routing import Routed
from millstream.wire import output
from millstream.wire.apis import ApiKey
from millstream.wire.messages import response_reader

log = logging.getLogger(__name__)

# Flexible, and topics by name. From 12 on a broker begins transactions by itself.
_VERSION_MAX: Final = 11
_VERSION_MIN: Final = 9
# Rows held back while requests are on their way.
BACKLOG_BYTES_MAX: Final = 8 << 20
REQUEST_BYTES_MAX: Final = 8 << 20
# What batches may be at most by default on every broker, with room for the header.
BATCH_BYTES_MAX: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class ProduceSettings:
    acks: int = -1
    codec: Codec = Codec.NONE
    batch_bytes_max: int = BATCH_BYTES_MAX
    # Without an answer that takes a batch.
    delivery_seconds_max: float = 120.0


@dataclass(slots=True)
class _Batch:
    """A batch that is being sent: the same bytes at every try."""

    header: bytes
    records: bytes
    count: int
    # Behind its last row, in the rows it was made from.
    end: int

    @property
    def size_bytes(self) -> int:
        return len(self.header) + len(self.records)


@dataclass(slots=True)
class _Queue:
    partition: TopicPartition
    batch_bytes_max: int
    waiting: deque[Routed] = field(default_factory=deque)
    start: int = 0
    batch: _Batch | None = None
    next_sequence: int = 0
    is_sent: bool = False


@dataclass(slots=True)
class _Sent:
    connection: Connection
    version: int
    queues: list[_Queue]


class BatchProducer:
    """Rows to partitions under one producer identity; not to be shared."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ProduceSettings,
        producer: Producer,
        *,
        transactional_id: str | None = None,
        join: Callable[[Sequence[TopicPartition]], None] | None = None,
    ) -> None:
        """`join` is told of partitions before they are first written to."""
        self._cluster = cluster
        self._settings = settings
        self._producer = producer
        self._transactional_id = transactional_id
        self._join = join
        self._queues: dict[TopicPartition, _Queue] = {}
        self._sent: dict[Address, _Sent] = {}
        self._backlog_bytes = 0
        self._progress_at = time.monotonic()
        self._pause = PAUSE_SECONDS_MIN
        self.rows_written = 0

    def add(self, routed: Routed) -> None:
        """Take rows; waits while too many are not written yet."""
        queue = self._queues.get(routed.partition)
        if queue is None:
            queue = _Queue(routed.partition, self._settings.batch_bytes_max)
            self._queues[routed.partition] = queue
        # The time that the caller took to come with more is no stall of ours.
        self._progress_at = time.monotonic()
        queue.waiting.append(routed)
        self._backlog_bytes += routed.size_bytes
        while self._backlog_bytes > BACKLOG_BYTES_MAX:
            self._go_on()

    def flush(self) -> None:
        """Wait until every row is written."""
        self._progress_at = time.monotonic()
        while any(queue.waiting for queue in self._queues.values()):
            self._go_on()

    def close(self) -> None:
        """Give up what is on its way."""
        for sent in self._sent.values():
            sent.connection.close()
        self._sent = {}

    # -- one round --------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Take in the answers that are due, then send what can be sent."""
        for address in list(self._sent):
            self._receive(address)
        try:
            self._send_all()
        except (OSError, KafkaError, ProtocolError) as failed:
            self._wait(failed)

    def _send_all(self) -> None:
        by_leader: dict[Address, list[_Queue]] = {}
        for queue in self._queues.values():
            if queue.waiting and not queue.is_sent:
                leader = self._cluster.leader_of(queue.partition)
                by_leader.setdefault(leader, []).append(queue)
        if self._join is not None:
            self._join([queue.partition for queues in by_leader.values() for queue in queues])
        for address, queues in by_leader.items():
            if address not in self._sent:
                self._send(address, queues)

    def _send(self, address: Address, queues: list[_Queue]) -> None:
        chosen = []
        size = 0
        for queue in queues:
            batch = queue.batch or self._encode(queue)
            queue.batch = batch
            size += batch.size_bytes
            chosen.append(queue)
            if size >= REQUEST_BYTES_MAX:
                break
        connection = connect(address, self._cluster.settings.security)
        try:
            version = connection.version_of(ApiKey.PRODUCE, _VERSION_MAX)
            if version < _VERSION_MIN:
                raise SourceError("BROKER_TOO_OLD", f"{address} is older than Kafka 2.7")
            connection.send(ApiKey.PRODUCE, version, *self._request(chosen))
        except BaseException:
            connection.close()
            raise
        for queue in chosen:
            queue.is_sent = True
        self._sent[address] = _Sent(connection, version, chosen)

    def _encode(self, queue: _Queue) -> _Batch:
        routed = queue.waiting[0]
        records, end = routed.encoder.encode(routed.rows, queue.start, queue.batch_bytes_max)
        is_idempotent = self._producer.producer_id >= 0
        header, payload = build_batch_of_rows(
            records,
            end - queue.start,
            timestamp_ms=SystemClock().now_ms(),
            codec=self._settings.codec,
            producer=self._producer,
            base_sequence=queue.next_sequence if is_idempotent else -1,
        )
        return _Batch(header, payload, end - queue.start, end)

    def _request(self, queues: list[_Queue]) -> list[bytes | bytearray]:
        """The body in pieces, so that batches are not copied once more."""
        head = bytearray()
        output.compact_nullable_string(head, self._transactional_id)
        output.int16(head, self._settings.acks)
        output.int32(head, round(self._cluster.settings.request_seconds_max * 1000))
        topics: dict[str, list[_Queue]] = {}
        for queue in queues:
            topics.setdefault(queue.partition.topic, []).append(queue)
        output.compact_array_count(head, len(topics))
        parts: list[bytes | bytearray] = [head]
        for topic, members in topics.items():
            output.compact_string(head, topic)
            output.compact_array_count(head, len(members))
            for queue in members:
                assert queue.batch is not None
                output.int32(head, queue.partition.partition)
                output.unsigned_varint(head, queue.batch.size_bytes + 1)
                # The partition's tags come behind its records.
                head = bytearray(b"\0")
                parts += [queue.batch.header, queue.batch.records, head]
            head.append(0)
        head.append(0)
        return parts

    # -- answers ----------------------------------------------------------------------------

    def _receive(self, address: Address) -> None:
        sent = self._sent.pop(address)
        for queue in sent.queues:
            queue.is_sent = False
        timeout = self._cluster.settings.request_seconds_max * 2
        try:
            cursor = sent.connection.receive(ApiKey.PRODUCE, sent.version, timeout)
            answer = response_reader(ApiKey.PRODUCE, sent.version)(cursor)
        except (OSError, ProtocolError) as failed:
            sent.connection.close()
            self._wait(failed)
            return
        release(sent.connection)
        problem: KafkaError | None = None
        for topic in answer.responses:
            for row in topic.partition_responses:
                queue = self._queues[TopicPartition(topic.name, row.index)]
                failure = self._take_answer(queue, KafkaCode(row.error_code), row.error_message)
                problem = problem or failure
        if problem is not None:
            self._wait(problem)

    def _take_answer(
        self, queue: _Queue, code: KafkaCode, message: str | None
    ) -> KafkaError | None:
        """Move on behind a batch that was taken; the error if it shall be sent again."""
        if code in (KafkaCode.NONE, KafkaCode.DUPLICATE_SEQUENCE_NUMBER):
            self._move_on(queue)
            return None
        assert queue.batch is not None
        if code in (KafkaCode.MESSAGE_TOO_LARGE, KafkaCode.RECORD_LIST_TOO_LARGE):
            if queue.batch.count == 1:
                raise SourceError(
                    "RECORD_TOO_LARGE",
                    f"A row for {queue.partition} makes a batch of {queue.batch.size_bytes} bytes, "
                    "more than the topic's max.message.bytes. Raise that, or leave the row out",
                )
            # The topic allows less than usual; the same rows go in two or more batches.
            queue.batch_bytes_max = max(1, queue.batch.size_bytes // 2)
            queue.batch = None
            return None
        if code in PASSING_CODES:
            return KafkaError(code, f"{queue.partition}: {code.name}")
        raise SourceError(
            "WRITE_REFUSED", f"{queue.partition}: {message or code.name} ({code.name})"
        )

    def _move_on(self, queue: _Queue) -> None:
        batch = queue.batch
        assert batch is not None
        queue.batch = None
        self.rows_written += batch.count
        queue.next_sequence = (queue.next_sequence + batch.count) & 0x7FFFFFFF
        queue.start = batch.end
        if queue.start == len(queue.waiting[0].rows):
            self._backlog_bytes -= queue.waiting.popleft().size_bytes
            queue.start = 0
        self._progress_at = time.monotonic()
        self._pause = PAUSE_SECONDS_MIN

    def _wait(self, problem: Exception) -> None:
        """Pause after a failure that may pass; raise when it lasts too long."""
        self._cluster.forget_leaders()
        stalled = time.monotonic() - self._progress_at
        if stalled + self._pause > self._settings.delivery_seconds_max:
            raise Unreachable(
                "NO_PROGRESS",
                f"no row was taken for {stalled:.0f} s; the last problem was: {problem}. "
                "'kafka.delivery.timeout.ms' says how long to try",
            ) from problem
        log.warning("writing: %s; trying again", problem)
        time.sleep(self._pause)
        self._pause = min(self._pause * 2, PAUSE_SECONDS_MAX)
