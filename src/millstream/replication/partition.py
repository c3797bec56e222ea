"""A partition as its leader: the log, the leader epoch, and the waiting requests.

A standalone node leads all its partitions and is their only replica, so the high watermark
is the end of the log. When records are safe on the disk is another question: see
`group_commit`.
"""

import logging
from asyncio import Future
from collections.abc import Callable
from typing import Final

from millstream.errors import KafkaCode, KafkaError, LogDirFailed
from millstream.model import NO_LEADER_EPOCH, TopicId, TopicPartition
from millstream.records.batch import HEADER_BYTES, BatchView
from millstream.records.control import EndTransactionMarker
from millstream.replication.admission import Generation, Refusal, Standing, WriteTerms
from millstream.replication.waiting import FetchWaits
from millstream.storage import lookup
from millstream.storage.aborted import aborted_in_range
from millstream.storage.aborted_index import AbortedTransaction
from millstream.storage.log import (
    Appended,
    Batches,
    CorruptLog,
    FileRange,
    Log,
    LogConfig,
)
from millstream.storage.values import TimestampOffset

log = logging.getLogger(__name__)

# The default of flush.ms: the kernel decides when to write back.
FLUSH_NEVER_MS: Final = 2**63 - 1
# Each replica syncs before its position counts: the setting for replicas that share power.
_SYNC_EACH_BATCH: Final = 1
# Damage found while reading, and read errors of the disk.
_UNREADABLE: Final = (CorruptLog, LogDirFailed, OSError)


class Partition:
    # Other nodes have replicas, and the high watermark is not simply the end.
    is_replicated = False

    __slots__ = (
        "_generation",
        "_on_disk_failure",
        "_read_failure",
        "_unsynced_since_ms",
        "fetch_waits",
        "leader_epoch",
        "leader_id",
        "log",
        "offline_reason",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        partition_log: Log,
        *,
        leader_id: int,
        leader_epoch: int,
        generation: Generation,
        on_disk_failure: Callable[[str], None],
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = partition_log
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.offline_reason: str | None = None
        self.fetch_waits = FetchWaits()
        # Bumped with every change of `standing` or the options.
        self._generation = generation
        self._on_disk_failure = on_disk_failure
        # The last logged problem with unreadable records.
        self._read_failure: str | None = None
        self._unsynced_since_ms: int | None = None

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    @property
    def last_stable_offset(self) -> int:
        try:
            return self.log.last_stable_offset
        except _UNREADABLE as error:
            raise self._read_failed(error) from error

    def standing(self) -> Standing:
        """What is served here now: the one place that decides it."""
        offline = self._offline()
        return Standing(offline, offline, offline, offline)

    def _offline(self) -> Refusal | None:
        if self.offline_reason is None:
            return None
        return Refusal(KafkaCode.KAFKA_STORAGE_ERROR, self.offline_reason)

    def require_online(self) -> None:
        """May the leader's records be read or changed here? Raises KafkaError."""
        refusal = self.standing().read
        if refusal is not None:
            raise refusal.error()

    def require_readable(self) -> None:
        """May consumers read here, from a leader or from a follower? Raises KafkaError."""
        refusal = self.standing().near_read
        if refusal is not None:
            raise refusal.error()

    def require_committed_writes(self) -> None:
        """May the node write here what has to be committed? Raises KafkaError."""
        refusal = self.standing().committed_write
        if refusal is not None:
            raise refusal.error()

    def update_config(self, config: LogConfig) -> None:
        self.log.update_config(config)
        self._generation.bump()

    @property
    def counted_offset(self) -> int:
        """Up to where this replica counts as having the records."""
        if self.log.config.flush_messages <= _SYNC_EACH_BATCH:
            return self.log.synced_offset
        return self.log.next_offset

    @property
    def is_leader(self) -> bool:
        return True

    @property
    def has_lease(self) -> bool:
        """Whether no other node can have taken over because this one is silent."""
        return True

    @property
    def is_settled(self) -> bool:
        """Is the high watermark one that never decreases?"""
        return True

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Fence a client that knows an older leadership, or a newer one than ours (KIP-320)."""
        if current_leader_epoch == NO_LEADER_EPOCH:
            return
        if current_leader_epoch < self.leader_epoch:
            raise KafkaError(KafkaCode.FENCED_LEADER_EPOCH)
        if current_leader_epoch > self.leader_epoch:
            raise KafkaError(KafkaCode.UNKNOWN_LEADER_EPOCH)

    def append(self, batches: Batches, terms: WriteTerms, *, now_ms: int) -> Appended:
        """Write what producers sent, restamped in place: the only way in for produced batches.

        Raises KafkaError. Then nothing of a group is written: each of its batches must be
        appended separately, to get its own answer.
        """
        assert terms.generation == self._generation.number, "the terms are outdated"
        if terms.has_lease is not None and not terms.has_lease():
            raise KafkaError(KafkaCode.NOT_LEADER_OR_FOLLOWER)
        if terms.refusal is not None:
            raise terms.refusal.error()
        try:
            appended = self.log.append(
                batches, terms.rules, leader_epoch=self.leader_epoch, now_ms=now_ms
            )
        except LogDirFailed as error:
            self._on_disk_failure(str(error))
            raise KafkaError(KafkaCode.KAFKA_STORAGE_ERROR, str(error)) from error
        except OSError as error:
            # Writes report their errors as above: this is producer state that had to be read.
            raise self._read_failed(error) from error
        if (self.is_replicated or self.fetch_waits.waiting) and not appended.is_duplicate:
            self._note_appended(appended, batches.size_bytes)
        return appended

    def append_as_coordinator(self, data: memoryview, *, now_ms: int) -> Appended:
        """Write a batch of this node itself; check `require_committed_writes` before.
        `data` is restamped in place."""
        try:
            appended = self.log.append_unchecked(
                BatchView(data), leader_epoch=self.leader_epoch, now_ms=now_ms
            )
        except LogDirFailed as error:
            self._on_disk_failure(str(error))
            raise KafkaError(KafkaCode.KAFKA_STORAGE_ERROR, str(error)) from error
        if self.is_replicated or self.fetch_waits.waiting:
            self._note_appended(appended, len(data))
        return appended

    def append_marker(
        self, marker: EndTransactionMarker, *, producer_id: int, producer_epoch: int, now_ms: int
    ) -> Appended | None:
        """End a transaction here; None if that was already done."""
        self.require_online()
        try:
            appended = self.log.append_marker(
                marker,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                leader_epoch=self.leader_epoch,
                now_ms=now_ms,
            )
        except LogDirFailed as error:
            self._on_disk_failure(str(error))
            raise KafkaError(KafkaCode.KAFKA_STORAGE_ERROR, str(error)) from error
        except OSError as error:
            # As in `append`. Nothing is written, so the marker can be sent again.
            raise self._read_failed(error) from error
        # read_committed consumers may read on, by more than the marker itself.
        self.fetch_waits.wake()
        if appended is not None:
            self._note_appended(appended, HEADER_BYTES)
        return appended

    def _note_appended(self, appended: Appended, size_bytes: int) -> None:
        """Release the waiting requests. With one replica, written is committed."""
        if self.fetch_waits.waiting:
            try:
                is_undecided = self.last_stable_offset < self.high_watermark
            except KafkaError:
                # The log cannot be read back, as who waits finds out. The records are written: a
                # producer that got the error would write them again.
                self.fetch_waits.wake()
                return
            self.fetch_waits.committed(size_bytes, is_undecided=is_undecided)

    def read(self, offset: int, *, max_bytes: int, at_least_one: bool) -> FileRange | None:
        """Whole batches from `offset` on, as far as consumers may see."""
        try:
            return self.log.read(
                offset,
                max_bytes=max_bytes,
                upto_offset=self.high_watermark,
                at_least_one=at_least_one,
            )
        except _UNREADABLE as error:
            raise self._read_failed(error) from error

    def read_committed(
        self, offset: int, *, max_bytes: int, at_least_one: bool
    ) -> tuple[FileRange | None, list[AbortedTransaction]]:
        """As `read`, as far as transactions are decided, and which of them were aborted."""
        upto_offset = self.last_stable_offset
        try:
            found = self.log.read(
                offset, max_bytes=max_bytes, upto_offset=upto_offset, at_least_one=at_least_one
            )
            if found is None:
                return None, []
            number = self.log.segments.number_of(offset)
            aborted = aborted_in_range(
                self.log.segments.all, number, offset, found, upto_offset=upto_offset
            )
            return found, aborted
        except _UNREADABLE as error:
            raise self._read_failed(error) from error

    def read_for_replica(self, offset: int, *, max_bytes: int) -> FileRange | None:
        """Every batch from `offset` on, committed or not; the first one whole."""
        try:
            return self.log.read_for_replica(offset, max_bytes=max_bytes)
        except _UNREADABLE as error:
            raise self._read_failed(error) from error

    def offset_for_timestamp(
        self, timestamp_ms: int, *, upto_offset: int, searched: lookup.Searched
    ) -> TimestampOffset | None:
        """The first record at or after `timestamp_ms` that is below `upto_offset`.
        Raises LargeBatch."""
        try:
            return lookup.find_timestamp(
                self.log.segments.all,
                timestamp_ms,
                from_offset=self.log.log_start_offset,
                upto_offset=min(upto_offset, self.log.next_offset),
                searched=searched,
            )
        except _UNREADABLE as error:
            raise self._read_failed(error) from error

    def offset_at_once(self, timestamp_ms: int, *, upto_offset: int) -> TimestampOffset | None:
        """As `offset_for_timestamp`, for a rare lookup that nobody has to wait beside."""
        searched: dict[int, TimestampOffset | None] = {}
        while True:
            try:
                return self.offset_for_timestamp(
                    timestamp_ms, upto_offset=upto_offset, searched=searched
                )
            except lookup.LargeBatch as large:
                searched[large.base_offset] = large.search()

    def offset_of_max_timestamp(
        self, *, upto_offset: int, searched: lookup.Searched
    ) -> TimestampOffset | None:
        """None if the record is deleted, or not below `upto_offset`. Raises LargeBatch."""
        try:
            return lookup.find_max_timestamp(
                self.log.segments.all,
                from_offset=self.log.log_start_offset,
                upto_offset=upto_offset,
                searched=searched,
            )
        except _UNREADABLE as error:
            raise self._read_failed(error) from error

    def _read_failed(self, error: Exception) -> KafkaError:
        """The error to answer with; it is logged once.

        Other records may be readable, and writes continue: a dead disk shows at the next write.
        """
        reason = str(error)
        if reason != self._read_failure:
            self._read_failure = reason
            log.error("cannot read records of %s: %s", self.topic_partition, reason)
        return KafkaError(KafkaCode.KAFKA_STORAGE_ERROR, reason)

    def is_flush_due(self, now_ms: int) -> bool:
        """Have records been unsynced for `flush.ms`? As exact as the interval of the calls."""
        if self.log.config.flush_ms >= FLUSH_NEVER_MS or self.offline_reason is not None:
            return False
        if self.log.synced_offset >= self.log.next_offset:
            self._unsynced_since_ms = None
            return False
        if self._unsynced_since_ms is None:
            self._unsynced_since_ms = now_ms
        return now_ms - self._unsynced_since_ms >= self.log.config.flush_ms

    def wait_deleted(self, offset: int) -> Future[None] | None:
        """Done when no in-sync replica has anything below `offset`; None if that is so already."""
        return None

    def go_offline(self, reason: str) -> None:
        if self.offline_reason is None:
            log.error("partition %s is offline: %s", self.topic_partition, reason)
        self.offline_reason = reason
        self._generation.bump()
        self.fetch_waits.wake()

    def go_away(self) -> None:
        """The topic is deleted: requests that still hold this partition get an error."""
        self.offline_reason = "the topic is deleted"
        self._generation.bump()
        self.fetch_waits.wake()
