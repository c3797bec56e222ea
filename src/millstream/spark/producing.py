"""Writes to partitions: batches in order, each once, whatever happens to the brokers.

Several requests are in flight, to several leaders and several to each; `partition_queue`
decides which batches may be. Meanwhile the caller prepares more rows. Responses are read
when rows have to wait for them, the oldest first.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from millstream.client.blocking import Address, Connection
from millstream.clock import SystemClock
from millstream.errors import KafkaCode, KafkaError, ProtocolError
from millstream.model import Codec, TopicPartition
from millstream.records.rows import Producer
from millstream.spark.cluster import (
    PASSING_CODES,
    PAUSE_SECONDS_MAX,
    PAUSE_SECONDS_MIN,
    Cluster,
)
from millstream.spark.failure import SourceError, Unreachable
from millstream.spark.partition_queue import Batch, PartitionQueue, Verdict
from millstream.spark.pool import connect, release
from millstream.spark.routing import Routed
from millstream.wire import output
from millstream.wire.apis.produce import ProduceRequest
from millstream.wire.codec import response_reader

log = logging.getLogger(__name__)

# Flexible, and topics by name. From 12 on a broker begins transactions implicitly.
_VERSION_MAX: Final = 11
_VERSION_MIN: Final = 9
# Rows that are not accepted yet, in flight or not: enough to keep a broker busy.
BACKLOG_BYTES_MAX: Final = 8 << 20
REQUEST_BYTES_MAX: Final = 8 << 20
# The default maximum for batches on every broker, with room for the header.
BATCH_BYTES_MAX: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class ProduceSettings:
    acks: int = -1
    codec: Codec = Codec.NONE
    batch_bytes_max: int = BATCH_BYTES_MAX
    # Without a response that accepts a batch.
    delivery_seconds_max: float = 120.0


@dataclass(frozen=True, slots=True)
class _Link:
    connection: Connection
    version: int


@dataclass(frozen=True, slots=True)
class _Request:
    """A request that has no response yet."""

    address: Address
    queues: list[PartitionQueue]


class BatchProducer:
    """Writes rows to partitions under one producer identity; must not be shared."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ProduceSettings,
        producer: Producer,
        *,
        transactional_id: str | None = None,
        join: Callable[[Sequence[TopicPartition]], None] | None = None,
    ) -> None:
        """`join` is called with partitions before the first write to them."""
        self._cluster = cluster
        self._settings = settings
        self._producer = producer
        self._transactional_id = transactional_id
        self._join = join
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        # The leader to which a partition's batches in flight went.
        self._leaders: dict[TopicPartition, Address] = {}
        self._links: dict[Address, _Link] = {}
        self._requests: deque[_Request] = deque()
        self._progress_at = time.monotonic()
        self._pause = PAUSE_SECONDS_MIN

    @property
    def rows_written(self) -> int:
        return sum(queue.rows_taken for queue in self._queues.values())

    def write(self, rows: Iterable[Routed]) -> None:
        """Accept rows and send them; waits while too many are not written yet."""
        for routed in rows:
            self._queue_of(routed.partition).add(routed)
        # The caller's time to come with more is no stall of ours.
        self._progress_at = time.monotonic()
        self._send_all()
        while self._backlog_bytes > BACKLOG_BYTES_MAX:
            self._go_on()

    def flush(self) -> None:
        """Wait until every row is written."""
        self._progress_at = time.monotonic()
        while self._backlog_bytes:
            self._go_on()
        assert not self._requests, "an answer is due and no row waits for it"
        for link in self._links.values():
            release(link.connection)
        self._links = {}

    def close(self) -> None:
        """Give up what is in flight."""
        for link in self._links.values():
            link.connection.close()
        self._links = {}

    def _queue_of(self, partition: TopicPartition) -> PartitionQueue:
        queue = self._queues.get(partition)
        if queue is None:
            settings = self._settings
            queue = PartitionQueue(
                partition, self._producer, settings.codec, settings.batch_bytes_max
            )
            self._queues[partition] = queue
        return queue

    @property
    def _backlog_bytes(self) -> int:
        return sum(queue.held_bytes for queue in self._queues.values())

    # -- one round --------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Handle the response that is due first, then send what can be sent."""
        if self._requests:
            self._receive(self._requests.popleft())
        self._send_all()

    def _send_all(self) -> None:
        try:
            while by_leader := self._ready():
                for address, queues in by_leader.items():
                    self._send(address, queues)
        except (OSError, KafkaError, ProtocolError) as failed:
            self._wait(failed)

    def _ready(self) -> dict[Address, list[PartitionQueue]]:
        by_leader: dict[Address, list[PartitionQueue]] = {}
        for queue in self._queues.values():
            if not queue.can_send:
                continue
            leader = self._cluster.leader_of(queue.partition)
            # What is still in flight to the previous leader must not arrive second.
            if not queue.is_on_its_way or self._leaders[queue.partition] == leader:
                by_leader.setdefault(leader, []).append(queue)
        if self._join is not None:
            self._join([queue.partition for queues in by_leader.values() for queue in queues])
        return by_leader

    def _send(self, address: Address, queues: list[PartitionQueue]) -> None:
        chosen = []
        size = 0
        now_ms = SystemClock().now_ms()
        for queue in queues:
            batch = queue.peek(now_ms)
            size += batch.size_bytes
            chosen.append((queue, batch))
            if size >= REQUEST_BYTES_MAX:
                break
        link = self._links.get(address) or self._connect(address)
        try:
            link.connection.send(ProduceRequest.api, link.version, *self._body(chosen))
        except BaseException:
            self._break(address)
            raise
        for queue, _ in chosen:
            queue.mark_sent()
            self._leaders[queue.partition] = address
        self._requests.append(_Request(address, [queue for queue, _ in chosen]))

    def _connect(self, address: Address) -> _Link:
        connection = connect(address, self._cluster.settings.security)
        version = connection.versions.newest(ProduceRequest.api, _VERSION_MAX)
        if version < _VERSION_MIN:
            connection.close()
            raise SourceError("BROKER_TOO_OLD", f"{address} is older than Kafka 2.7")
        self._links[address] = link = _Link(connection, version)
        return link

    def _break(self, address: Address) -> None:
        """Close a connection; what was in flight there may or may not have arrived."""
        self._links.pop(address).connection.close()
        lost = [request for request in self._requests if request.address == address]
        self._requests = deque(each for each in self._requests if each.address != address)
        for request in lost:
            for queue in request.queues:
                queue.lose_answers()

    def _body(self, chosen: list[tuple[PartitionQueue, Batch]]) -> list[bytes | bytearray]:
        """The request in pieces, so that batches are not copied once more."""
        head = bytearray()
        output.compact_nullable_string(head, self._transactional_id)
        output.int16(head, self._settings.acks)
        output.int32(head, round(self._cluster.settings.request_seconds_max * 1000))
        topics: dict[str, list[tuple[int, Batch]]] = {}
        for queue, batch in chosen:
            members = topics.setdefault(queue.partition.topic, [])
            members.append((queue.partition.partition, batch))
        output.compact_array_count(head, len(topics))
        parts: list[bytes | bytearray] = [head]
        for topic, members in topics.items():
            output.compact_string(head, topic)
            output.compact_array_count(head, len(members))
            for partition, batch in members:
                output.int32(head, partition)
                output.unsigned_varint(head, batch.size_bytes + 1)
                # The partition's tags follow its records.
                head = bytearray(b"\0")
                parts += [batch.header, batch.records, head]
            head.append(0)
        head.append(0)
        return parts

    # -- answers ----------------------------------------------------------------------------

    def _receive(self, request: _Request) -> None:
        link = self._links[request.address]
        timeout = self._cluster.settings.request_seconds_max * 2
        try:
            cursor = link.connection.receive(timeout)
            answer = response_reader(ProduceRequest, link.version)(cursor)
            if sum(len(topic.partition_responses) for topic in answer.responses) != len(
                request.queues
            ):
                raise ProtocolError(f"{request.address} left partitions out of an answer")
        except (OSError, ProtocolError) as failed:
            self._requests.appendleft(request)
            self._break(request.address)
            self._wait(failed)
            return
        problem: KafkaError | None = None
        for topic in answer.responses:
            for row in topic.partition_responses:
                queue = self._queues[TopicPartition(topic.name, row.index)]
                failure = self._take_answer(queue, KafkaCode(row.error_code), row.error_message)
                problem = problem or failure
        if problem is not None:
            self._wait(problem)

    def _take_answer(
        self, queue: PartitionQueue, code: KafkaCode, message: str | None
    ) -> KafkaError | None:
        """Move past a batch that was accepted; return the error if it must be sent again."""
        verdict = queue.take(code)
        if verdict is Verdict.TAKEN:
            self._progress_at = time.monotonic()
            self._pause = PAUSE_SECONDS_MIN
        elif verdict is Verdict.ROW_TOO_LARGE:
            raise SourceError(
                "RECORD_TOO_LARGE",
                f"A row for {queue.partition} makes a batch of {queue.oldest.size_bytes} bytes, "
                "more than the topic's max.message.bytes. Raise that, or remove the row",
            )
        elif verdict is Verdict.FAILED:
            if code in PASSING_CODES:
                return KafkaError(code, f"{queue.partition}: {code.name}")
            raise SourceError(
                "WRITE_REFUSED", f"{queue.partition}: {message or code.name} ({code.name})"
            )
        return None

    def _wait(self, problem: Exception) -> None:
        """Pause after a temporary failure; raise if it lasts too long."""
        self._cluster.forget_leaders()
        stalled = time.monotonic() - self._progress_at
        if stalled + self._pause > self._settings.delivery_seconds_max:
            raise Unreachable(
                "NO_PROGRESS",
                f"no row was accepted for {stalled:.0f} s; the last problem was: {problem}. "
                "'kafka.delivery.timeout.ms' sets how long to try",
            ) from problem
        log.warning("writing: %s; trying again", problem)
        time.sleep(self._pause)
        self._pause = min(self._pause * 2, PAUSE_SECONDS_MAX)
