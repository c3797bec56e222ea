"""One partition's log: segments in order, appended to at the end.

Owns the offsets. Its parts own the rest: `segments` their files, `producers` the state of each
producer, `epochs` which leader wrote what, `unsynced` what is not on the disk. A leader gives
each batch the next offsets; a follower keeps the leader's. Nothing becomes visible before it
is completely written: a failed append leaves the log unchanged.

Knows nothing of clients, replicas and the clock. Synchronous; not for several threads.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final
from weakref import ref

from millstream.errors import KafkaCode, KafkaError, NoSpace
from millstream.model import TimestampType, TopicId, TopicPartition
from millstream.records.batch import CODEC_MASK, CONTROL_MASK, BatchView
from millstream.records.control import EndTransactionMarker, build_end_marker
from millstream.records.validation import (
    AppendOneByOne,
    BatchRules,
    check_group,
    check_produced,
)
from millstream.storage import layout, lookup, retention
from millstream.storage.checkpoints import format_partition_metadata
from millstream.storage.epochs import EpochCache
from millstream.storage.files import DescriptorCache
from millstream.storage.incoming import (
    answered_again,
    recompressed,
    replicated_batches,
)
from millstream.storage.log_producers import LogProducers
from millstream.storage.rolling import has_room
from millstream.storage.segment import Segment
from millstream.storage.segments import Segments
from millstream.storage.snapshots import Snapshots
from millstream.storage.syncing import SyncTicket, Unsynced
from millstream.storage.values import (
    Appended,
    BatchGroup,
    CorruptLog,
    FileRange,
    LogConfig,
    storage_failure,
)

__all__ = ["Appended", "CorruptLog", "FileRange", "Log", "LogConfig"]

# A single batch, or several that are written with one write.
Batches = BatchView | BatchGroup

# Looked up once: access to an enum member costs as much as a function call.
_LOG_APPEND_TIME: Final = TimestampType.LOG_APPEND_TIME


def _end(of: "ref[Log]") -> int:
    log = of()
    assert log is not None, "its parts are used through it"
    return log.next_offset


class Log:
    def __init__(
        self,
        directory: str,
        partition: TopicPartition,
        topic_id: TopicId,
        config: LogConfig,
        *,
        cache: DescriptorCache,
        device: int,
        segments: list[Segment],
        next_offset: int,
        log_start_offset: int,
        epochs: Sequence[tuple[int, int]],
        snapshots: Snapshots,
    ) -> None:
        self.directory = directory
        self.partition = partition
        self.topic_id = topic_id
        # 0 <= log_start_offset <= high_watermark <= next_offset. The records are in
        # [log_start_offset, next_offset); consumers see those below the high watermark.
        self.next_offset = next_offset
        self.log_start_offset = log_start_offset
        self.high_watermark = next_offset
        # With one replica, written is committed. A leader with followers sets this to False and
        # moves the high watermark itself.
        self.is_sole_replica = True
        self.cache = cache
        # The parts of a log do not refer to it: without a cycle, the memory of a deleted log is
        # free at once, and not only when all garbage is collected.
        end = partial(_end, ref(self))
        self.unsynced = Unsynced(cache.file_system, device, end)
        write_epochs = partial(self.unsynced.write_small, directory, layout.EPOCHS_FILE)
        self.epochs = EpochCache(epochs, end, write_epochs)
        self.segments = Segments(
            directory, segments, cache=cache, snapshots=snapshots, unsynced=self.unsynced
        )
        self.producers = LogProducers(self.segments, snapshots, end)
        self.update_config(config)

    def update_config(self, config: LogConfig) -> None:
        self.config = config
        # Are batches recompressed or restamped? Then they cannot be written unchanged.
        self._rewrites_batches = (
            config.compression_type is not None or config.timestamp_type is _LOG_APPEND_TIME
        )
        for segment in self.segments:
            segment.index_interval_bytes = config.index_interval_bytes

    @property
    def synced_offset(self) -> int:
        """Records below it are certainly on the disk."""
        return self.unsynced.synced_offset

    @property
    def last_stable_offset(self) -> int:
        """Every transaction below it is decided; read_committed consumers stop here."""
        first_open = self.producers.states.first_open_offset()
        if first_open is None:
            return self.high_watermark
        # The beginning of a transaction may be deleted before it ends.
        return max(min(first_open, self.high_watermark), self.log_start_offset)

    # Appending

    def append(
        self, batches: Batches, rules: BatchRules, *, leader_epoch: int, now_ms: int
    ) -> Appended:
        """Check what clients sent, give it the next offsets, and write it; all or nothing.

        The batches are restamped in place. A retry of a batch in the log gets the answer of the
        first attempt. If a group raises KafkaError, its batches may be appended one by one, so
        that each gets its own answer.
        """
        if not isinstance(batches, BatchView):
            check_group(batches, rules, now_ms)
            self._check_fits(batches, now_ms)
        else:
            check_produced(batches, rules, now_ms)
            if batches.producer_id >= 0:
                known = self.producers.check(batches)
                if known is not None:
                    return answered_again(known, self.config, self.log_start_offset)
            if self._rewrites_batches:
                return self.append_unchecked(batches, leader_epoch=leader_epoch, now_ms=now_ms)
        return self._write(batches, leader_epoch, now_ms)

    def append_marker(
        self,
        marker: EndTransactionMarker,
        *,
        producer_id: int,
        producer_epoch: int,
        leader_epoch: int,
        now_ms: int,
    ) -> Appended | None:
        """End a producer's transaction here; None if this marker was already written."""
        if not self.producers.states.check_marker(marker, producer_id, producer_epoch):
            return None
        data = build_end_marker(
            marker,
            base_offset=0,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp_ms=now_ms,
        )
        batch = BatchView(memoryview(data))
        return self.append_unchecked(batch, leader_epoch=leader_epoch, now_ms=now_ms)

    def _check_fits(self, group: BatchGroup, now_ms: int) -> None:
        """A group is written unchanged, into the active segment. Raises AppendOneByOne where that
        cannot be."""
        segment = self.segments.active
        if (
            self._rewrites_batches
            or not segment.size_bytes
            or not has_room(
                segment,
                self.config,
                size_bytes=group.size_bytes,
                timestamp_ms=group.max_timestamp_ms,
                last_offset=self.next_offset + group.last_offset_delta,
                now_ms=now_ms,
            )
        ):
            raise AppendOneByOne

    def append_unchecked(self, batch: BatchView, *, leader_epoch: int, now_ms: int) -> Appended:
        """Write a batch, possibly a control batch, with the topic's codec and timestamps."""
        config = self.config
        codec = config.compression_type
        if codec is not None and batch.attributes & CODEC_MASK != codec and not batch.is_control:
            batch = recompressed(batch, config)
        if config.timestamp_type is not _LOG_APPEND_TIME:
            return self._write(batch, leader_epoch, now_ms)
        batch.stamp_append_time(now_ms)
        appended = self._write(batch, leader_epoch, now_ms)
        appended.append_time_ms = now_ms
        return appended

    def _write(self, batches: Batches, leader_epoch: int, now_ms: int) -> Appended:
        base_offset = self.next_offset
        next_offset = base_offset + batches.last_offset_delta + 1
        if leader_epoch != self.epochs.latest:
            self.epochs.assign(leader_epoch, base_offset)
        size_bytes = batches.size_bytes
        # A marker has to be written in any case: without it a transaction would never end.
        if size_bytes > self.config.segment_bytes and not batches.attributes & CONTROL_MASK:
            raise KafkaError(
                KafkaCode.RECORD_LIST_TOO_LARGE,
                f"batch of {size_bytes} bytes is larger than segment.bytes",
            )
        segment = self.segments.active
        if not has_room(
            segment,
            self.config,
            size_bytes=size_bytes,
            timestamp_ms=batches.max_timestamp_ms,
            last_offset=next_offset - 1,
            now_ms=now_ms,
        ):
            segment = self._roll_at(base_offset, now_ms)
        try:
            position = segment.file.append(batches.stamped(base_offset, leader_epoch))
        except OSError as error:
            raise storage_failure(error, self.directory) from error
        if isinstance(batches, BatchView):
            segment.note_appended(batches, position)
        else:
            segment.note_group(batches, base_offset, position)
        segment.modified_ms = now_ms
        self.unsynced.files[segment.file] = None
        self.next_offset = next_offset
        if self.is_sole_replica:
            self.high_watermark = next_offset
        if batches.producer_id >= 0:
            assert isinstance(batches, BatchView), "a group has no producer"
            self.producers.take_in(batches)
        return Appended(base_offset, next_offset, -1, self.log_start_offset, False)

    def append_as_follower(self, data: memoryview, now_ms: int | None = None) -> Appended:
        """Write batches with the leader's offsets and epochs. Without the clock, it is as late as
        the newest record."""
        batches = replicated_batches(data, self.next_offset)
        if not batches:
            return Appended(self.next_offset, self.next_offset, -1, self.log_start_offset, False)
        if len(data) > self.config.segment_bytes and len(batches) > 1:
            for batch in batches:
                appended = self.append_as_follower(batch.bytes, now_ms)
            appended.base_offset = batches[0].base_offset
            return appended
        self.producers.read_before(batches)
        next_offset = batches[-1].next_offset
        newest_ms = max(batch.max_timestamp_ms for batch in batches)
        first = batches[0].base_offset
        clock_ms = newest_ms if now_ms is None else now_ms
        segment = self._segment_for(len(data), newest_ms, first, next_offset, clock_ms)
        try:
            position = segment.file.append(data)
        except OSError as error:
            raise storage_failure(error, self.directory) from error
        for batch in batches:
            if batch.partition_leader_epoch >= 0:
                self.epochs.assign(batch.partition_leader_epoch, batch.base_offset)
            segment.note_appended(batch, position)
            position += batch.size_bytes
            if batch.producer_id >= 0:
                self.producers.take_in(batch)
            self.next_offset = batch.next_offset
        segment.modified_ms = clock_ms
        self.unsynced.files[segment.file] = None
        return Appended(first, next_offset, -1, self.log_start_offset, False)

    # Segments

    def _segment_for(
        self, size_bytes: int, timestamp_ms: int, first_offset: int, next_offset: int, now_ms: int
    ) -> Segment:
        """The active segment, or a new one if what a follower appends does not belong in it."""
        active = self.segments.active
        if has_room(
            active,
            self.config,
            size_bytes=size_bytes,
            timestamp_ms=timestamp_ms,
            last_offset=next_offset - 1,
            now_ms=now_ms,
        ):
            return active
        return self._roll_at(max(first_offset, self.next_offset), now_ms)

    def roll(self, now_ms: int = 0) -> None:
        """Start a new segment; the previous one no longer changes."""
        if self.segments.active.size_bytes:
            self._roll_at(self.next_offset, now_ms)

    def _roll_at(self, base_offset: int, now_ms: int) -> Segment:
        try:
            self.producers.snapshot()
            return self.segments.begin(base_offset, self.config, now_ms)
        except OSError as error:
            raise storage_failure(error, self.directory) from error

    # Reading

    def read(
        self, offset: int, *, max_bytes: int, upto_offset: int, at_least_one: bool
    ) -> FileRange | None:
        """Batches from the one that holds `offset`, all of them below `upto_offset`.

        The range may end inside a batch, at `max_bytes`, but never inside the first.
        """
        self._check_inside(offset)
        upto_offset = min(upto_offset, self.next_offset)
        if offset >= upto_offset:
            return None
        try:
            return lookup.find_range(
                self.segments.all,
                self.segments.number_of(offset),
                offset,
                max_bytes=max_bytes,
                upto_offset=upto_offset,
                next_offset=self.next_offset,
                at_least_one=at_least_one,
            )
        except OSError as error:
            raise storage_failure(error, self.directory) from error

    def read_for_replica(self, offset: int, *, max_bytes: int) -> FileRange | None:
        """Every batch from `offset` on, committed or not; the first one complete."""
        self._check_inside(offset)
        if offset == self.next_offset:
            return None
        number = self.segments.number_of(offset)
        try:
            return lookup.find_all_batches(
                self.segments.all, number, offset, max_bytes=max_bytes, next_offset=self.next_offset
            )
        except OSError as error:
            raise storage_failure(error, self.directory) from error

    def _check_inside(self, offset: int) -> None:
        if offset < self.log_start_offset or offset > self.next_offset:
            raise KafkaError(
                KafkaCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is outside [{self.log_start_offset}, {self.next_offset}]",
            )

    # Cutting

    def truncate_to(self, offset: int) -> None:
        """Drop everything from `offset` on, including the whole batch that contains it."""
        if offset >= self.next_offset:
            return
        if offset < self.segments[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return
        self._end_at(self.segments.cut_at(offset, self.config))

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything; the next record gets `offset`."""
        self.segments.start_again_at(offset, self.config)
        self.log_start_offset = offset
        self._end_at(offset)

    def _end_at(self, next_offset: int) -> None:
        self.next_offset = next_offset
        self.log_start_offset = min(self.log_start_offset, next_offset)
        self.high_watermark = min(self.high_watermark, next_offset)
        self.unsynced.cut(next_offset)
        self.epochs.truncate_end(next_offset)
        try:
            self.producers.cut(next_offset)
        except OSError as error:
            raise storage_failure(error, self.directory) from error
        self.epochs.save_if_changed()

    def delete_records_before(self, offset: int) -> int:
        """Move the log start up to `offset`; return the resulting log start."""
        if offset > self.high_watermark or offset < 0:
            raise KafkaError(
                KafkaCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is above the high watermark {self.high_watermark}",
            )
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_start(offset)
        return self.log_start_offset

    def apply_retention(self, now_ms: int) -> list[Segment]:
        """Remove the segments that are too old, exceed the size, or are before the log start."""
        expired = retention.count_expired(
            retention.segment_ages(self.segments, self.next_offset, now_ms),
            self.config,
            now_ms=now_ms,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
        )
        if expired == 0:
            return []
        if expired == len(self.segments):
            try:
                self._roll_at(self.next_offset, now_ms)
            except NoSpace:
                # On a full disk it is all the more important to remove the others.
                expired -= 1
                if expired == 0:
                    raise
        removed = self.segments[:expired]
        self.segments.remove(removed, self.config, now_ms)
        self.log_start_offset = max(self.log_start_offset, self.segments[0].base_offset)
        self.epochs.truncate_start(self.log_start_offset)
        return removed

    def give_topic_id(self, topic_id: TopicId) -> None:
        """Write the topic id, if the directory does not have it."""
        data = format_partition_metadata(topic_id)
        self.unsynced.write_small(self.directory, layout.PARTITION_METADATA_FILE, data)
        self.topic_id = topic_id

    def begin_sync(self) -> SyncTicket | None:
        """What is not on the disk yet, pinned; None if nothing. Raises LogDirFailed and OSError.

        Epochs are written here and not with the first record of each: when a node fails, thousands
        of partitions get a new leader at once. No recovery point may pass an epoch that is not in
        the file.
        """
        try:
            if self.unsynced:
                self.epochs.save_if_changed()
        except NoSpace:
            # The next sync tries again. Without the file, recovery reads the batches.
            pass
        self.segments.sync_closed_by_name()
        return self.unsynced.begin_sync()

    def finish(self) -> None:
        """Write what is only in memory, so that the next start can trust the files."""
        self.epochs.save_if_changed()
        try:
            self.segments.active.finish()
            self.producers.snapshot_if_read()
        except OSError as error:
            raise storage_failure(error, self.directory) from error

    def close(self) -> None:
        """Close the descriptors. Nothing is written or synced: see `finish`."""
        self.unsynced.abandon()
        self.segments.close()
