"""The checkpoints of a data directory: recovery points, high watermarks, log starts.

The files are Kafka's. A recovery point says up to where a log is certainly on the disk, so
it must never exceed the end of the log: a start would take a truncated log for a damaged
one. Callers that are about to truncate call `may_cut` first.
"""

from collections.abc import Callable, Mapping

from millstream.model import TopicPartition
from millstream.storage import layout
from millstream.storage.aborted import count_aborted
from millstream.storage.checkpoints import read_offsets, write_offsets
from millstream.storage.files import FileSystem
from millstream.storage.log import Log
from millstream.storage.values import storage_failure


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
        # Recovery points as the file on the disk has them, and limits for the next ones. None of
        # them is ever beyond the end of its log.
        self._recovery_points: dict[TopicPartition, int] = {}
        self._recovery_limits: dict[TopicPartition, int] = {}
        # Partitions in the files on the disk.
        self._named: set[TopicPartition] = set()
        # Counts the captured states; an older one never replaces a later one.
        self._taken = 0

    def read(self, name: str) -> dict[TopicPartition, int]:
        return read_offsets(self._file_system, self._path(name)) or {}

    def found(
        self,
        recovery_points: Mapping[TopicPartition, int],
        log_starts: Mapping[TopicPartition, int],
    ) -> None:
        """What the files said at the start."""
        self._recovery_points = dict(recovery_points)
        self._named = set(recovery_points) | set(log_starts)

    def forget(self, partition: TopicPartition) -> None:
        """A new log gets this name. The files must not apply the entries of an older log to it.
        Raises LogDirFailed or NoSpace."""
        if partition in self._named:
            self.write()
            self._named.discard(partition)

    def may_cut(self, partition: TopicPartition, offset: int) -> bool:
        """Is no checkpoint on the disk beyond `offset`?

        If one is, the next files are limited, and after that the log may be cut; call `was_cut`
        afterwards.
        """
        if self._recovery_points.get(partition, 0) <= offset:
            return True
        self._recovery_limits[partition] = offset
        return False

    def was_cut(self, partition: TopicPartition) -> None:
        self._recovery_limits.pop(partition, None)

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
        self._taken += 1
        number = self._taken
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
        named = set(recovery_points) | set(log_starts)
        self._named |= named

        def write() -> None:
            try:
                for name, offsets in files:
                    if number == self._taken:
                        write_offsets(self._file_system, self._path(name), offsets, number=number)
            except OSError as error:
                raise storage_failure(error, f"checkpoints in {self._directory}") from error
            if number == self._taken:
                self._named = named
                self._recovery_points = recovery_points

        return write

    def write_aborted_counts(self) -> None:
        counts = {where: count_aborted(log.segments) for where, log in self._logs.items()}
        self._keep_offline(counts, layout.ABORTED_COUNTS_FILE)
        some = {where: count for where, count in counts.items() if count}
        write_offsets(self._file_system, self._path(layout.ABORTED_COUNTS_FILE), some)

    def _keep_offline(self, offsets: dict[TopicPartition, int], name: str) -> None:
        """Keep the entries of partitions that could not be opened."""
        if self._offline:
            old = self.read(name)
            offsets |= {where: old[where] for where in self._offline if where in old}

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"
