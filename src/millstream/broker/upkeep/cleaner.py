"""Compaction in the background: one partition at a time, the dirtiest first.

The files are written off the loop (`compaction_worker`); the loop only looks for work and
renames. If a partition cannot be compacted, the cleaner logs that once and skips it until
the next start. `cleaner-offset-checkpoint` records where the rounds ended. Its entries are names
only, so it is kept true: an entry of a log that is gone, or was cut below it, would count for
what is written later, and a round would remove a tombstone without the records it deletes.
"""

import asyncio
import errno
import logging
from collections.abc import Callable
from contextlib import aclosing
from enum import IntEnum
from threading import Lock
from typing import Final

from millstream.broker.node.state import NodeState
from millstream.broker.upkeep.compaction_worker import Stopped, Throttle, run_round
from millstream.errors import KafkaError, LogDirFailed, NoSpace
from millstream.lazy_dataclass import dataclass
from millstream.model import TopicPartition
from millstream.replication.partition import Partition
from millstream.storage import layout
from millstream.storage.checkpoints import read_offsets, write_offsets
from millstream.storage.compaction import Dirtiness, is_due
from millstream.storage.compaction_plan import CompactionLimits, measure, plan_round
from millstream.storage.compaction_round import CannotCompact, CleanedSegment
from millstream.storage.files import OsFileSystem
from millstream.storage.log import Log
from millstream.storage.segment import Segment
from millstream.storage.segment_swap import begin_swap, discard, finish_swap, replaced_segments

log = logging.getLogger(__name__)

# There is no room on the disk, or for another descriptor or process, now.
_FULL = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM}
)

# How long `cleaner-offset-checkpoint` may have an entry that is not true any more.
FILE_CHECKED_SECONDS: Final = 1.0


class State(IntEnum):
    IDLE = 0
    WAITING = 1
    RUNNING = 2
    FAILED = 3


@dataclass(slots=True)
class Progress:
    """The state of compaction of one partition."""

    state: State = State.IDLE
    problem: str | None = None
    bytes_before: int = 0
    bytes_after: int = 0
    records_before: int = 0
    records_after: int = 0
    keys: int = 0
    moved_bytes: int = 0
    elapsed_ms: int = 0


class Cleaner:
    def __init__(self, node: NodeState) -> None:
        self._node = node
        self._file_system = OsFileSystem()
        # Keyed by log, not by name: a name can come back, a log cannot.
        self._progress: dict[TopicPartition, tuple[Log, Progress]] = {}
        self._asked: dict[TopicPartition, None] = {}
        self._wake = asyncio.Event()
        self._throttle: Throttle | None = None
        self._tasks: list[asyncio.Task[None]] = []
        # What `cleaner-offset-checkpoint` says; None while that is not known.
        self._written: dict[TopicPartition, int] | None = None
        self._writes = 0
        # Held while the file is written: a slow writer must not replace what a later one wrote.
        self._writing = Lock()

    # -- start and stop -------------------------------------------------------------

    def start(self) -> None:
        """After the topics were opened. A log that was created then is empty, and an entry with its
        name is beyond its end."""
        stored = read_offsets(self._file_system, self._path) or {}
        for where, offset in stored.items():
            found = self._node.disk.store.logs.get(where)
            if found is not None and offset <= found.next_offset:
                found.segments.cleaned_offset = offset
        self._written = stored
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._run()), loop.create_task(self._keep_file_true())]

    async def stop(self) -> None:
        if self._throttle is not None:
            self._throttle.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._tasks and self._is_file_outdated():
            try:
                self._take_offsets()()
            except OSError as error:
                log.warning("cannot write %s: %s", self._path, error)

    # -- for other rooms ------------------------------------------------------------

    def cleaned_offset(self, partition: Partition) -> int | None:
        return partition.log.segments.cleaned_offset

    def dirty_ratio(self, partition: Partition) -> float:
        return self._measure(partition, self._node.clock.now_ms()).ratio

    def _measure(self, partition: Partition, now_ms: int) -> Dirtiness:
        offset = self.cleaned_offset(partition)
        return measure(partition.log, cleaned_offset=offset, now_ms=now_ms)

    def progress(self, partition: Partition) -> Progress:
        known = self._progress.get(partition.topic_partition)
        return known[1] if known is not None and known[0] is partition.log else Progress()

    def _begin(self, partition: Partition, state: State) -> Progress:
        size_bytes = partition.log.segments.size_bytes
        progress = Progress(state, bytes_before=size_bytes, bytes_after=size_bytes)
        self._progress[partition.topic_partition] = (partition.log, progress)
        return progress

    def ask(self, partition: Partition) -> None:
        """Compact as soon as possible everything that is eligible: the active segment is rolled."""
        where = partition.topic_partition
        if self.progress(partition).state in (State.WAITING, State.RUNNING):
            return
        partition.log.roll(self._node.clock.now_ms())
        self._begin(partition, State.WAITING)
        self._asked[where] = None
        self._wake.set()

    # -- the work -------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            partition = await self._choose()
            if partition is None:
                await self._wait()
                continue
            is_asked = partition.topic_partition in self._asked
            self._asked.pop(partition.topic_partition, None)
            progress = await self._clean(partition, is_asked=is_asked)
            if progress.problem is not None:
                # A full disk does not recover within moments.
                await self._wait()

    async def _wait(self) -> None:
        seconds = self._node.config.int("log.cleaner.backoff.ms") / 1000
        try:
            async with asyncio.timeout(max(seconds, 0.01)):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _choose(self) -> Partition | None:
        """A requested partition first; otherwise the dirtiest of those that are due."""
        node = self._node
        for where in list(self._asked):
            partition = node.partitions.find(where.topic, where.partition)
            if partition is not None and partition.offline_reason is None:
                return partition
            del self._asked[where]
            if partition is not None:
                self._give_up(partition, str(partition.offline_reason))
        if not node.config.boolean("log.cleaner.enable") or node.disk.failure is not None:
            return None
        dirtiest: tuple[float, Partition] | None = None
        now_ms = node.clock.now_ms()
        for count, partition in enumerate(list(node.partitions), start=1):
            if count % 200 == 0:
                await asyncio.sleep(0)
            if partition.offline_reason is not None or not partition.log.config.is_compacted:
                continue
            if self.progress(partition).state is State.FAILED:
                continue
            try:
                found = self._measure(partition, now_ms)
            except (KafkaError, OSError) as error:
                self._give_up(partition, error)
                continue
            is_dirtier = dirtiest is None or found.ratio > dirtiest[0]
            if is_dirtier and is_due(found, partition.log.config):
                dirtiest = (found.ratio, partition)
        return None if dirtiest is None else dirtiest[1]

    async def _clean(self, partition: Partition, *, is_asked: bool) -> Progress:
        """One round; on request, as many as the keys need."""
        where = partition.topic_partition
        progress = self._begin(partition, State.RUNNING)
        began = self._node.clock.monotonic()
        try:
            while await self._clean_once(partition, progress, began) and is_asked:
                pass
            progress.state = State.IDLE
            _report(where, progress)
        except Stopped:
            progress.state = State.IDLE
        except LogDirFailed as error:
            self._node.disk.fail(str(error))
            self._give_up(partition, error)
        except (OSError, NoSpace) as error:
            self._give_up_or_wait(partition, progress, error)
        except (CannotCompact, KafkaError, MemoryError) as error:
            self._give_up(partition, error)
        except Exception as error:
            # A bug, but it must not stop the compaction of other partitions.
            log.exception("compaction of %s failed", where)
            self._give_up(partition, error)
        finally:
            progress.elapsed_ms = _elapsed_ms(self._node, began)
            is_whole = progress.state is State.IDLE and progress.problem is None
            # On a failed disk, a `.swap` may be all that is left of the records it replaces.
            if not is_whole and self._node.disk.failure is None:
                self._discard(partition.log)
        return progress

    def _give_up(self, partition: Partition, error: Exception | str) -> None:
        """Skip it until the next start, or until someone requests this partition."""
        log.error("cannot compact %s, leaving it alone: %s", partition.topic_partition, error)
        progress = self.progress(partition)
        progress.state, progress.problem = State.FAILED, str(error) or type(error).__name__
        self._progress[partition.topic_partition] = (partition.log, progress)

    def _give_up_or_wait(
        self, partition: Partition, progress: Progress, error: OSError | NoSpace
    ) -> None:
        where = partition.topic_partition
        if isinstance(error, FileNotFoundError):
            # Retention or a deletion was faster than the round.
            log.info("compaction of %s ended: its files have changed", where)
        elif isinstance(error, NoSpace) or error.errno in _FULL:
            log.warning("compaction of %s waits: %s", where, error)
        else:
            self._give_up(partition, error)
            return
        progress.state, progress.problem = State.IDLE, str(error)

    async def _clean_once(self, partition: Partition, progress: Progress, began: float) -> bool:
        """False if there was nothing to do, or the log changed in the meantime."""
        node, partition_log = self._node, partition.log
        truncations = partition_log.unsynced.truncations
        planned = plan_round(
            partition_log,
            _limits(node),
            cleaned_offset=self.cleaned_offset(partition),
            now_ms=node.clock.now_ms(),
        )
        if planned is None:
            return False
        _begin_round(progress)
        moved_bytes = progress.moved_bytes
        throttle = Throttle(node.config.float("log.cleaner.io.max.bytes.per.second"))
        self._throttle = throttle
        end_offset = None
        is_in_place = True
        try:
            async with aclosing(run_round(planned, throttle)) as segments:
                async for cleaned in segments:
                    is_in_place = await self._put_in_place(partition, cleaned)
                    if not is_in_place:
                        break
                    _count(progress, cleaned)
                    _warn(partition.topic_partition, cleaned)
                    progress.moved_bytes = moved_bytes + throttle.moved_bytes
                    progress.elapsed_ms = _elapsed_ms(node, began)
                    end_offset = cleaned.end_offset
        finally:
            self._throttle = None
        if not is_in_place:
            self._discard(partition_log)
            return False
        if partition_log.unsynced.truncations != truncations:
            # Below the end of the round there may be records now that were in none.
            return False
        if end_offset is not None:
            partition_log.segments.cleaned_offset = end_offset
            await self._write_offsets()
        return True

    async def _put_in_place(self, partition: Partition, cleaned: CleanedSegment) -> bool:
        """False if the log has changed so that the segment no longer fits."""
        partition_log = partition.log
        if self._old_segments(partition, cleaned) is None:
            return False
        begin_swap(partition_log, cleaned)
        await self._sync(partition_log)
        old = self._old_segments(partition, cleaned)
        if old is None:
            return False
        try:
            finish_swap(partition_log, cleaned, old, now_ms=self._node.clock.now_ms())
        except (OSError, NoSpace) as error:
            # The renames are half done. The next start completes them; we cannot continue.
            raise LogDirFailed(f"{partition_log.directory}: {error}") from error
        await self._sync(partition_log)
        return True

    def _old_segments(self, partition: Partition, cleaned: CleanedSegment) -> list[Segment] | None:
        if self._node.disk.store.logs.get(partition.topic_partition) is not partition.log:
            return None
        return replaced_segments(partition.log, cleaned)

    async def _sync(self, partition_log: Log) -> None:
        loop = asyncio.get_running_loop()
        sync = self._file_system.sync_directory
        await loop.run_in_executor(None, sync, partition_log.directory)

    def _discard(self, partition_log: Log) -> None:
        try:
            discard(self._file_system, partition_log.directory)
        except FileNotFoundError:
            # The topic was deleted, and all of its files with it.
            return
        except OSError as error:
            log.warning("cannot remove files of a compaction: %s", error)

    # -- cleaner-offset-checkpoint --------------------------------------------------

    @property
    def _path(self) -> str:
        return f"{self._node.disk.store.directory}/{layout.CLEANER_OFFSETS_FILE}"

    async def _keep_file_true(self) -> None:
        """Logs are deleted and cut without asking the cleaner."""
        problem = None
        while True:
            if self._is_file_outdated():
                try:
                    await self._write_offsets()
                    problem = None
                except OSError as error:
                    if problem != str(error):
                        problem = str(error)
                        log.warning("cannot write %s yet: %s", self._path, error)
            await asyncio.sleep(FILE_CHECKED_SECONDS)

    def _is_file_outdated(self) -> bool:
        if self._node.disk.failure is not None:
            return False
        logs, written = self._node.disk.store.logs, self._written
        if written is None:
            return True
        return any(
            where not in logs or logs[where].segments.cleaned_offset != offset
            for where, offset in written.items()
        )

    async def _write_offsets(self) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self._take_offsets())

    def _take_offsets(self) -> Callable[[], None]:
        """The offsets of this moment, and a function that writes them, which may run in a thread.
        It raises OSError."""
        self._writes += 1
        number = self._writes
        offsets = {
            where: each.segments.cleaned_offset
            for where, each in self._node.disk.store.logs.items()
            if each.segments.cleaned_offset is not None
        }

        def write() -> None:
            with self._writing:
                if number == self._writes:
                    self._written = None
                    write_offsets(self._file_system, self._path, offsets, number=number)
                    self._written = offsets

        return write


def _limits(node: NodeState) -> CompactionLimits:
    return CompactionLimits(
        keys_bytes=node.config.int("log.cleaner.dedupe.buffer.size"),
        load_factor=min(max(node.config.float("log.cleaner.io.buffer.load.factor"), 0.1), 0.95),
        buffer_bytes=node.config.int("log.cleaner.io.buffer.size"),
    )


def _begin_round(progress: Progress) -> None:
    """A round reads again what earlier rounds kept; that counts once."""
    progress.records_before -= progress.records_after
    progress.records_after = 0


def _count(progress: Progress, cleaned: CleanedSegment) -> None:
    progress.bytes_after -= cleaned.bytes_before - cleaned.bytes_after
    progress.records_before += cleaned.records_before
    progress.records_after += cleaned.records_after
    progress.keys = max(progress.keys, cleaned.keys)


def _warn(where: TopicPartition, cleaned: CleanedSegment) -> None:
    if cleaned.unreadable_batches:
        log.warning(
            "%s: kept %d batches as they are in the segment at offset %d: their records cannot be"
            " read, so no client can consume them",
            where,
            cleaned.unreadable_batches,
            cleaned.base_offset,
        )


def _elapsed_ms(node: NodeState, began: float) -> int:
    return round((node.clock.monotonic() - began) * 1000)


def _report(where: TopicPartition, progress: Progress) -> None:
    if progress.records_before:
        log.info(
            "compacted %s from %d to %d bytes, keys=%d",
            where,
            progress.bytes_before,
            progress.bytes_after,
            progress.keys,
        )
