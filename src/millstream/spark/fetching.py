"""Record batches of one partition, as bytes from its leader.

`read_range` yields batches between two offsets and hides what happens in between: a
leader that moves, a broker that restarts, retention that passes the reader, offsets that
compaction and transaction markers left empty. While the caller works on one response the
next one is already in flight.
"""

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from millstream.client.blocking import Connection
from millstream.client.fetch import (
    BY_ID,
    BY_NAME,
    Fetched,
    FetchLimits,
    RefusedFetch,
    read_fetched,
    write_fetch,
)
from millstream.errors import KafkaCode, KafkaError, ProtocolError
from millstream.model import NO_TOPIC_ID
from millstream.records.batch import HEADER_BYTES, BatchView
from millstream.records.control import ControlType, read_end_marker
from millstream.spark.cluster import (
    EARLIEST,
    PASSING_CODES,
    PAUSE_SECONDS_MAX,
    PAUSE_SECONDS_MIN,
    Cluster,
    FetchSettings,
)
from millstream.spark.failure import SourceError, Unreachable, begins_at, lose
from millstream.spark.pool import connect, release
from millstream.spark.ranges import OffsetRange
from millstream.wire.apis.fetch import FetchRequest
from millstream.wire.cursor import Cursor
from millstream.wire.fetch import FetchPartition

log = logging.getLogger(__name__)

_READ_UNCOMMITTED: Final = 0
_READ_COMMITTED: Final = 1


@dataclass(frozen=True, slots=True)
class Part:
    """The batches of one response; the first may begin before the requested offset."""

    from_offset: int
    batches: list[BatchView]


def read_range(cluster: Cluster, wanted: OffsetRange, settings: FetchSettings) -> Iterator[Part]:
    """The range's batches, in order; the last may extend beyond its end.

    Without control batches, and without aborted ones if only committed data is wanted.
    """
    return _RangeReader(cluster, wanted, settings).read()


class _RangeReader:
    def __init__(self, cluster: Cluster, wanted: OffsetRange, settings: FetchSettings) -> None:
        self._cluster = cluster
        self._wanted = wanted
        self._settings = settings
        self._offset = wanted.from_offset
        self._connection: Connection | None = None
        self._is_sent = False
        self._version = BY_NAME
        self._progress_at = time.monotonic()
        self._pause = PAUSE_SECONDS_MIN

    def read(self) -> Iterator[Part]:
        try:
            while self._offset < self._wanted.upto_offset:
                from_offset = self._offset
                batches = self._next_batches()
                if batches:
                    yield Part(from_offset, batches)
                    # The caller's time is no stall of ours. If it was long, the broker may have
                    # closed the connection, because the response in flight was not read.
                    self._progress_at = time.monotonic()
        finally:
            self._hang_up(is_reusable=not self._is_sent)

    def _next_batches(self) -> list[BatchView]:
        """Batches of the next response; none after a problem, which includes a pause."""
        try:
            fetched = self._receive()
        except (OSError, ProtocolError) as failed:
            self._hang_up(is_reusable=False)
            self._wait(failed)
            return []
        except KafkaError as failed:
            if self._is_topic_gone(failed.code):
                return []
            self._wait(failed)
            return []
        if fetched.code == KafkaCode.OFFSET_OUT_OF_RANGE:
            self._skip_what_is_lost()
            return []
        if fetched.code != KafkaCode.NONE:
            self._take_refusal(fetched.code)
            return []
        batches = self._whole_batches(fetched)
        if not batches:
            if self._offset < self._wanted.upto_offset:
                self._check_stall()
            return []
        self._progress_at = time.monotonic()
        self._pause = PAUSE_SECONDS_MIN
        if self._offset < self._wanted.upto_offset:
            self._send_nowait()
        return self._without_aborted(batches, fetched)

    # -- the wire ---------------------------------------------------------------------------

    def _receive(self) -> Fetched:
        if not self._is_sent:
            self._send()
        assert self._connection is not None
        timeout = self._settings.wait_ms / 1000 + self._cluster.settings.request_seconds_max
        cursor = self._connection.receive(timeout)
        self._is_sent = False
        return _read_answer(cursor, self._version)

    def _send_nowait(self) -> None:
        try:
            self._send()
        except OSError:
            # Reported and handled when the response is needed.
            self._hang_up(is_reusable=False)

    def _send(self) -> None:
        if self._connection is None:
            address = self._cluster.leader_of(self._wanted.partition)
            self._connection = connect(address, self._cluster.settings.security)
            self._version = BY_NAME
            has_id = self._wanted.topic_id != NO_TOPIC_ID
            if has_id and self._connection.versions.newest(FetchRequest.api, BY_ID) == BY_ID:
                self._version = BY_ID
        body = _request(self._wanted, self._offset, self._version, self._settings)
        self._connection.send(FetchRequest.api, self._version, body)
        self._is_sent = True

    def _hang_up(self, *, is_reusable: bool) -> None:
        if self._connection is not None:
            if is_reusable:
                release(self._connection)
            else:
                self._connection.close()
        self._connection = None
        self._is_sent = False

    # -- problems ---------------------------------------------------------------------------

    def _wait(self, problem: Exception) -> None:
        """Pause after a temporary failure; raise if it lasts too long."""
        self._cluster.forget_leaders()
        stalled = time.monotonic() - self._progress_at
        if stalled + self._pause > self._settings.stall_seconds_max:
            raise Unreachable(
                "NO_PROGRESS",
                f"{self._wanted.partition} gave no records from offset {self._offset} on for "
                f"{stalled:.0f} s; the last problem was: {problem}. "
                "'kafkaConsumer.pollTimeoutMs' sets how long to wait",
            ) from problem
        log.warning("%s at offset %d: %s", self._wanted.partition, self._offset, problem)
        time.sleep(self._pause)
        self._pause = min(self._pause * 2, PAUSE_SECONDS_MAX)

    def _take_refusal(self, code: int) -> None:
        self._hang_up(is_reusable=True)
        if self._is_topic_gone(code):
            return
        name = KafkaCode(code).name
        if code not in PASSING_CODES:
            raise SourceError("BROKER_REFUSED", f"reading {self._wanted.partition}: {name}")
        self._wait(KafkaError(KafkaCode(code), name))

    def _is_topic_gone(self, code: int) -> bool:
        """Whether the planned topic no longer exists; then the range ends."""
        partition = self._wanted.partition
        if code not in (KafkaCode.UNKNOWN_TOPIC_ID, KafkaCode.UNKNOWN_TOPIC_OR_PARTITION):
            return False
        now = self._cluster.describe_topics([partition.topic]).get(partition.topic)
        if now is not None and partition.partition in now.leaders:
            if NO_TOPIC_ID in (self._wanted.topic_id, now.topic_id):
                return False
            if now.topic_id == self._wanted.topic_id:
                return False
        self._lose(f"Topic {partition.topic} was deleted or recreated while it was read")
        self._offset = self._wanted.upto_offset
        return True

    def _skip_what_is_lost(self) -> None:
        partition = self._wanted.partition
        start = self._cluster.list_offsets({partition: EARLIEST}, is_committed_only=False)
        log_start = start[partition]
        if log_start <= self._offset:
            self._lose(f"{partition} ends before offset {self._offset}, which existed before")
            self._offset = self._wanted.upto_offset
            return
        self._lose(begins_at(partition, log_start, requested=self._offset))
        self._offset = min(log_start, self._wanted.upto_offset)

    def _lose(self, text: str) -> None:
        lose(text, fails=self._settings.fails_on_data_loss)

    def _check_stall(self) -> None:
        """After a response without batches: more may come.

        A high watermark before our offset is no loss: a new leader's is behind until its followers
        have fetched. A log that did get shorter answers OFFSET_OUT_OF_RANGE.
        """
        if time.monotonic() - self._progress_at > self._settings.stall_seconds_max:
            self._wait(TimeoutError("empty answers"))

    # -- records ----------------------------------------------------------------------------

    def _whole_batches(self, fetched: Fetched) -> list[BatchView]:
        """The batches of a response that belong to the range; moves past them."""
        batches = []
        data, position = fetched.records, 0
        while len(data) - position >= HEADER_BYTES:
            batch = BatchView(data[position:])
            if batch.magic != 2 or batch.size_bytes < HEADER_BYTES:
                raise SourceError(
                    "UNREADABLE_RECORDS",
                    f"{self._wanted.partition} has a batch of format {batch.magic} near offset "
                    f"{self._offset}; only format 2 (Kafka 0.11 and later) is supported",
                )
            if batch.size_bytes > len(data) - position:
                break
            if batch.base_offset >= self._wanted.upto_offset:
                self._offset = self._wanted.upto_offset
                break
            position += batch.size_bytes
            if batch.last_offset >= self._offset:
                batches.append(batch)
                self._offset = batch.next_offset
        return batches

    def _without_aborted(self, batches: list[BatchView], fetched: Fetched) -> list[BatchView]:
        if not self._settings.is_committed_only or not fetched.aborted:
            return [batch for batch in batches if not batch.is_control]
        waiting = sorted(fetched.aborted, key=lambda row: row[1], reverse=True)
        aborting: set[int] = set()
        kept = []
        for batch in batches:
            while waiting and waiting[-1][1] <= batch.last_offset:
                aborting.add(waiting.pop()[0])
            if batch.is_control:
                marker = read_end_marker(batch)
                if marker is not None and marker.type is ControlType.ABORT:
                    aborting.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in aborting):
                kept.append(batch)
        return kept


def _request(wanted: OffsetRange, offset: int, version: int, settings: FetchSettings) -> bytearray:
    # One partition: a task reads one, and soon another task reads it elsewhere.
    out = bytearray()
    size_max = settings.response_bytes_max
    isolation_level = _READ_COMMITTED if settings.is_committed_only else _READ_UNCOMMITTED
    partition = FetchPartition(wanted.partition.partition, offset, size_max)
    topic = wanted.topic_id if version >= BY_ID else wanted.partition.topic
    limits = FetchLimits(settings.wait_ms, 1, size_max, isolation_level)
    write_fetch(out, version, [(topic, [partition])], limits)
    return out


def _read_answer(cursor: Cursor, version: int) -> Fetched:
    """The one partition of a response; an error of the whole request counts as its own."""
    code: int = KafkaCode.UNKNOWN_SERVER_ERROR
    try:
        for fetched in read_fetched(cursor, version):
            return fetched
    except RefusedFetch as refused:
        code = refused.code
    return Fetched("", -1, code, -1, -1, [], memoryview(b""))
