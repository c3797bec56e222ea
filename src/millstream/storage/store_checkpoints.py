"""The checkpoints of a data directory: recovery points, high watermarks, log starts.

The files are Kafka's. A recovery point says up to where a log is certainly on the disk, so
it must never exceed the end of the log: a start would take a truncated log for a damaged
one. Callers that are about to truncate call `may_cut` first.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from millstream.lazy_dataclass import dataclass
from millstream.model import TopicPartition
from millstream.storage import layout
from millstream.storage.aborted import count_aborted
from millstream.storage.checkpoints import read_offsets, write_offsets
from millstream.storage.files import FileSystem
from millstream.storage.log import Log
from millstream.storage.values import storage_failure

_OFFLINE_FILE: Final = "millstream-offline-partitions"


@dataclass(frozen=True, slots=True)
class _Contents:
    """What the files say, or will say once they are written."""

    number: int
    recovery_points: Mapping[TopicPartition, int]
    # All that are in any of the files.
    partitions: frozenset[TopicPartition]

    def or_earlier(self, earlier: "_Contents") -> "_Contents":
        """For when it is not known which of the two the files have: the furthest of both."""
        points = dict(earlier.recovery_points)
        for where, point in self.recovery_points.items():
            points[where] = max(point, points.get(where, 0))
        return _Contents(self.number, points, self.partitions | earlier.partitions)


class StoreCheckpoints:
    def __init__(
        self,
        file_system: FileSystem,
        directory: str,
        logs: Mapping[TopicPartition, Log],
        offline: Mapping[TopicPartition, str],
    ) -> None:
        self._file_system = file_system
        self._directory = directory
        self._logs = logs
        self._offline = offline
        # The files as they were written last, and as they may be once everything is written that
        # was captured since: a thread may be in the middle of it, or have failed there. No recovery
        # point in either is ever beyond the end of its log.
        self._written = self._captured = _Contents(0, {}, frozenset())
        # For the recovery points that are captured next.
        self._recovery_limits: dict[TopicPartition, int] = {}
        # Held while the files are written: a slow writer must not replace what a later one wrote.
        # Callers that write in a thread set a lock here.
        self.turns: AbstractContextManager[object] = nullcontext()

    def read(self, name: str) -> dict[TopicPartition, int]:
        return read_offsets(self._file_system, self._path(name)) or {}

    def found(
        self,
        recovery_points: Mapping[TopicPartition, int],
        log_starts: Mapping[TopicPartition, int],
    ) -> None:
        """What the files said at the start."""
        partitions = frozenset(recovery_points) | frozenset(log_starts)
        self._written = self._captured = _Contents(0, recovery_points, partitions)

    def forget(self, partition: TopicPartition) -> None:
        """A new log gets this name. The files must not apply the entries of an older log to it.
        Raises LogDirFailed or NoSpace."""
        if any(partition in contents.partitions for contents in self._possible()):
            self.write()

    def may_cut(self, partition: TopicPartition, offset: int) -> bool:
        """Is no checkpoint beyond `offset`, on the disk or on its way there?

        If one is, the next files are limited, and after that the log may be cut; call `was_cut`
        afterwards.
        """
        points = (contents.recovery_points.get(partition, 0) for contents in self._possible())
        if max(points) <= offset:
            return True
        self._recovery_limits[partition] = offset
        return False

    def was_cut(self, partition: TopicPartition) -> None:
        self._recovery_limits.pop(partition, None)

    def _possible(self) -> tuple[_Contents, ...]:
        """What the files may say, now or later."""
        written, captured = self._written, self._captured
        return (written,) if written.number == captured.number else (written, captured)

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """As last written: hints, they may be older than the logs."""
        return self.read(layout.HIGH_WATERMARKS_FILE)

    def write(self) -> None:
        """Raises LogDirFailed or NoSpace."""
        self.take()()

    def take(self) -> Callable[[], None]:
        """The state of this moment, and a function that writes it, which may run in a thread.

        Never replaces files that a later call has written. The function raises LogDirFailed or
        NoSpace.
        """
        logs = self._logs.items()
        limits = self._recovery_limits
        recovery_points = {
            where: min(log.synced_offset, limits.get(where, log.synced_offset))
            for where, log in logs
        }
        high_watermarks = {where: log.high_watermark for where, log in logs}
        log_starts = {
            where: log.log_start_offset
            for where, log in logs
            if log.log_start_offset > log.segments[0].base_offset
        }
        files = (
            (layout.RECOVERY_POINTS_FILE, recovery_points),
            (layout.HIGH_WATERMARKS_FILE, high_watermarks),
            (layout.LOG_STARTS_FILE, log_starts),
        )
        for name, offsets in files:
            self._keep_offline(offsets, name)
        partitions = frozenset(recovery_points) | frozenset(log_starts)
        number = self._captured.number + 1
        contents = captured = _Contents(number, recovery_points, partitions)
        for earlier in self._possible()[1:]:
            captured = captured.or_earlier(earlier)
        self._captured = captured

        def write() -> None:
            try:
                with self.turns:
                    for name, offsets in files:
                        if number != self._captured.number:
                            return
                        path = self._path(name)
                        write_offsets(self._file_system, path, offsets, number=number)
                    self._written = contents
            except OSError as error:
                raise storage_failure(error, f"checkpoints in {self._directory}") from error

        return write

    def write_aborted_counts(self) -> None:
        counts = {where: count_aborted(log.segments) for where, log in self._logs.items()}
        self._keep_offline(counts, layout.ABORTED_COUNTS_FILE)
        some = {where: count for where, count in counts.items() if count}
        write_offsets(self._file_system, self._path(layout.ABORTED_COUNTS_FILE), some)

    def write_offline(self, cut_off: Collection[TopicPartition]) -> None:
        """Before the clean marker: what it says is not true of the partitions that are offline.
        `cut_off` are those whose files a power cut may have torn."""
        offline = {where: int(where in cut_off) for where in self._offline}
        write_offsets(self._file_system, self._path(_OFFLINE_FILE), offline)

    def read_offline(self) -> dict[TopicPartition, bool]:
        """After a clean stop: the partitions that were offline, and whether a power cut may have
        torn their files."""
        return {where: number != 0 for where, number in self.read(_OFFLINE_FILE).items()}

    def _keep_offline(self, offsets: dict[TopicPartition, int], name: str) -> None:
        """Keep the entries of partitions that could not be opened."""
        if self._offline:
            old = self.read(name)
            offsets |= {where: old[where] for where in self._offline if where in old}

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"
