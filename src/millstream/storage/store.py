"""All logs of one data directory, and the directory itself.

Opening takes the lock, checks who owns the directory, finds out how it was shut down and
loads every partition. A log that cannot be opened is `offline` with a reason and does not
affect others. Until the lock is held and the directory is known to be ours, nothing changes.
"""

import uuid
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path

from millstream.errors import KafkaError, LogDirFailed, NoSpace, StartError
from millstream.model import NO_TOPIC_ID, TopicId, TopicPartition
from millstream.storage import layout
from millstream.storage.directories import PartitionDirectories, make_with_parents
from millstream.storage.files import DescriptorCache, FileSystem
from millstream.storage.last_shutdown import LastShutdown
from millstream.storage.log import Log
from millstream.storage.meta import DirectoryOwner
from millstream.storage.recovery import Circumstances, recover_log
from millstream.storage.recovery_sync import Confirmation, sync_all
from millstream.storage.segment_files import create_segment
from millstream.storage.snapshots import Snapshots
from millstream.storage.store_checkpoints import StoreCheckpoints
from millstream.storage.strays import Strays, note_stray
from millstream.storage.values import LogConfig, storage_failure

DESCRIPTOR_LIMIT = 8192
# Partition directories wait this long before their files are deleted, like segments.
_DIRECTORY_DELETE_DELAY_MS = 60_000


class LogStore:
    def __init__(
        self,
        directory: str,
        file_system: FileSystem,
        owner: DirectoryOwner,
        *,
        lock: int,
        descriptor_limit: int,
        clock_now_ms: Callable[[], int],
        report: Callable[[str], None],
    ) -> None:
        self.directory = directory
        self.owner = owner
        self.last_shutdown = LastShutdown(file_system, directory)
        self.logs: dict[TopicPartition, Log] = {}
        self.offline: dict[TopicPartition, str] = {}
        # Those of them whose files a power cut may have torn.
        self._cut_off: set[TopicPartition] = set()
        # Deleted, but not renamed yet.
        self._leaving: dict[TopicPartition, Log | None] = {}
        self._file_system = file_system
        self._cache = DescriptorCache(file_system, descriptor_limit)
        self._device = file_system.device(directory)
        self._lock = lock
        self._clock_now_ms = clock_now_ms
        self._report = report
        self._directories = PartitionDirectories(file_system)
        self.strays = Strays(file_system, directory, self._directories, clock_now_ms)
        self.checkpoints = StoreCheckpoints(file_system, directory, self.logs, self.offline)

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        file_system: FileSystem,
        cluster_id: str | None,
        broker_id: int,
        clock_now_ms: Callable[[], int],
        configs: Callable[[str], LogConfig],
        report: Callable[[str], None],
        descriptor_limit: int = DESCRIPTOR_LIMIT,
    ) -> "LogStore":
        """Claim a directory and load what is in it; after a crash, also sync all of it."""
        store = cls.claim(
            directory,
            file_system=file_system,
            cluster_id=cluster_id,
            broker_id=broker_id,
            clock_now_ms=clock_now_ms,
            report=report,
            descriptor_limit=descriptor_limit,
        )
        try:
            store.owner.keep()
            store.load(configs)
            store.confirm_recovery()
        except StartError:
            store.close(clean=False)
            raise
        except (OSError, LogDirFailed, NoSpace) as error:
            store.close(clean=False)
            raise StartError(f"cannot load data directory {directory}: {error}") from error
        return store

    @classmethod
    def claim(
        cls,
        directory: Path,
        *,
        file_system: FileSystem,
        cluster_id: str | None,
        broker_id: int,
        clock_now_ms: Callable[[], int],
        report: Callable[[str], None],
        descriptor_limit: int = DESCRIPTOR_LIMIT,
    ) -> "LogStore":
        """A directory that belongs to us from here on, its logs not loaded yet.

        Raises StartError, with nothing changed on disk, if it belongs to another.
        """
        path = str(directory)
        try:
            make_with_parents(file_system, path)
            # Checked before the lock file is created, too: a foreign directory stays untouched.
            DirectoryOwner(file_system, path, cluster_id=cluster_id, broker_id=broker_id)
            lock = _take_lock(file_system, path)
        except OSError as error:
            raise StartError(f"cannot use data directory {path}: {error.strerror}") from error
        try:
            owner = DirectoryOwner(file_system, path, cluster_id=cluster_id, broker_id=broker_id)
            store = cls(
                path,
                file_system,
                owner,
                lock=lock,
                descriptor_limit=descriptor_limit,
                clock_now_ms=clock_now_ms,
                report=report,
            )
        except OSError as error:
            file_system.close(lock)
            raise StartError(f"cannot use data directory {path}: {error}") from error
        except StartError:
            file_system.close(lock)
            raise
        return store

    def load(self, configs: Callable[[str], LogConfig]) -> None:
        """Open every log, recovering what the last shutdown left. Raises StartError.

        After a crash, `confirmation` must follow.
        """
        try:
            found = self._file_system.list(self.directory)
            self.last_shutdown.begin_use({info.name for info in found})
            self._load([info.name for info in found if info.is_directory], configs)
            if not self.last_shutdown.was_clean and not self.logs:
                self.checkpoints.write()
            if self._is_on_disk:
                self.last_shutdown.name_boot()
        except (OSError, LogDirFailed, NoSpace) as error:
            raise StartError(f"cannot load data directory {self.directory}: {error}") from error

    @property
    def is_short_of_descriptors(self) -> bool:
        return self._cache.is_short

    # Starting

    def _path(self, name: str) -> str:
        return f"{self.directory}/{name}"

    def _load(self, names: list[str], configs: Callable[[str], LogConfig]) -> None:
        recovery_points = self.checkpoints.read(layout.RECOVERY_POINTS_FILE)
        log_starts = self.checkpoints.read(layout.LOG_STARTS_FILE)
        # After a crash they may be outdated.
        is_counted = self.last_shutdown.was_clean
        aborted = self.checkpoints.read(layout.ABORTED_COUNTS_FILE) if is_counted else {}
        # They are as the crash before the clean stop has left them.
        were_offline = self.checkpoints.read_offline() if self.last_shutdown.was_clean else {}
        self.checkpoints.found(recovery_points, log_starts)
        now_ms = self._clock_now_ms()
        for name in sorted(names):
            if layout.is_deleted_directory(name):
                self._directories.remove_later(self._path(name), due_ms=now_ms)
            partition = layout.parse_directory(name)
            if partition is None:
                continue
            circumstances = Circumstances(
                was_stopped_cleanly=self.last_shutdown.was_clean and partition not in were_offline,
                power_was_cut=were_offline.get(partition, self.last_shutdown.power_was_cut),
                recovery_point=recovery_points.get(partition, 0),
                log_start_offset=log_starts.get(partition, 0),
                aborted_count=aborted.get(partition, 0),
                now_ms=now_ms,
            )
            self._load_one(name, partition, configs(partition.topic), circumstances)

    def _load_one(
        self,
        name: str,
        partition: TopicPartition,
        config: LogConfig,
        circumstances: Circumstances,
    ) -> None:
        try:
            self.logs[partition] = recover_log(
                self._path(name),
                partition,
                config,
                circumstances,
                cache=self._cache,
                device=self._device,
                report=self._report,
            )
        except (KafkaError, LogDirFailed, OSError) as error:
            # Damage, or a file that cannot be read: it concerns only this partition.
            self.offline[partition] = str(error)
            if circumstances.power_was_cut:
                self._cut_off.add(partition)
            self._report(f"{partition} is offline: {error}")

    def confirm_recovery(self) -> None:
        """All steps of a `Confirmation`, one after the other."""
        confirmation = self.confirmation()
        if confirmation is not None:
            confirmation.end(is_synced=confirmation.sync())
            self.checkpoints.write()
            self.last_shutdown.name_boot()

    @property
    def _is_on_disk(self) -> bool:
        return self.last_shutdown.was_clean or not self.logs

    def confirmation(self) -> Confirmation | None:
        """What recovery found and may only be in the page cache; None if there is none."""
        if self._is_on_disk:
            return None
        return Confirmation(self._file_system, self._lock, self.logs.values())

    # Partitions

    def create(
        self,
        partition: TopicPartition,
        topic_id: TopicId,
        config: LogConfig,
        *,
        sibling: Log | None = None,
    ) -> Log:
        """A new, empty log. Its directory is on the disk after the log's first sync.

        `sibling` is a log of the same topic that was created before.
        """
        if partition in self._leaving:
            self.delete(partition)
        self.checkpoints.forget(partition)
        path = self._path(layout.directory_name(partition))
        now_ms = self._clock_now_ms()
        self._directories.make(path)
        try:
            if topic_id != NO_TOPIC_ID:
                place = None if sibling is None else sibling.directory
                self._directories.write_metadata(path, topic_id, sibling=place)
            segment = create_segment(self._cache, path, 0, config, now_ms=now_ms)
        except OSError as error:
            self._directories.undo(path)
            raise storage_failure(error, path) from error
        log = Log(
            path,
            partition,
            topic_id,
            config,
            cache=self._cache,
            device=self._device,
            segments=[segment],
            next_offset=0,
            log_start_offset=0,
            epochs=[],
            snapshots=Snapshots(self._file_system, path, []),
        )
        log.unsynced.note_created(path, self.directory, segment.file)
        self.logs[partition] = log
        return log

    def create_many(
        self, partitions: Iterable[TopicPartition], topic_id: TopicId, config: LogConfig
    ) -> list[Log]:
        """New logs of one topic."""
        created: list[Log] = []
        for partition in partitions:
            sibling = created[0] if created else None
            created.append(self.create(partition, topic_id, config, sibling=sibling))
        return created

    def delete(self, partition: TopicPartition) -> None:
        """Rename the partition's directory; `sweep` deletes the files later."""
        name = layout.deleted_directory_name(partition, uuid.uuid4())
        if self._take_away(partition, name):
            due_ms = self._clock_now_ms() + _DIRECTORY_DELETE_DELAY_MS
            self._directories.remove_later(self._path(name), due_ms=due_ms)

    def delete_later(self, partition: TopicPartition) -> None:
        """As `delete`, but `finish_deletions` renames the directory, or `create` if it is first."""
        self.offline.pop(partition, None)
        self._leaving[partition] = self.logs.pop(partition, None)

    def finish_deletions(self, at_most: int) -> bool:
        """A part of what `delete_later` has left; whether nothing is left. Raises LogDirFailed."""
        for partition in list(islice(self._leaving, at_most)):
            self.delete(partition)
        return not self._leaving

    def put_aside(self, partition: TopicPartition) -> None:
        """Keep the files of an unknown partition, under a name that is not loaded."""
        name = layout.stray_directory_name(partition, uuid.uuid4())
        if self._take_away(partition, name):
            note_stray(self._file_system, self._path(name), now_ms=self._clock_now_ms())
            self._report(f"{partition} belongs to no topic; its files are in {self._path(name)}")

    def _take_away(self, partition: TopicPartition, name: str) -> bool:
        """Close the log and rename its directory; False if there is none."""
        for found in (self.logs.pop(partition, None), self._leaving.pop(partition, None)):
            if found is not None:
                found.close()
        self.offline.pop(partition, None)
        old = self._path(layout.directory_name(partition))
        try:
            self._file_system.rename(old, self._path(name))
        except FileNotFoundError:
            return False
        except OSError as error:
            raise LogDirFailed(f"cannot rename {old}: {error.strerror}") from error
        return True

    def take_due_directories(self, now_ms: int) -> list[str]:
        """Those that were renamed long enough ago. `remove_directories` removes them."""
        return self._directories.take_due(now_ms)

    def remove_directories(self, paths: list[str]) -> None:
        """In a thread, for one can hold gigabytes. Raises OSError; what is left is due again."""
        self._directories.remove(paths)

    def sweep(self, now_ms: int) -> None:
        """Delete the files and directories that were renamed long enough ago."""
        for log in self.logs.values():
            log.segments.sweep(now_ms)
        self.remove_directories(self.take_due_directories(now_ms))

    # Checkpoints and stopping

    def close(self, *, clean: bool) -> None:
        """Release the directory; `clean` also makes the next start trust it."""
        try:
            if clean:
                self._finish()
        finally:
            for log in (*self.logs.values(), *filter(None, self._leaving.values())):
                log.close()
            self._file_system.close(self._lock)

    def _finish(self) -> None:
        self.finish_deletions(len(self._leaving))
        for log in self.logs.values():
            log.finish()
        try:
            sync_all(self._file_system, self._lock, self.logs.values())
            self.checkpoints.write()
            self.checkpoints.write_aborted_counts()
            self.checkpoints.write_offline(self._cut_off)
            self.last_shutdown.mark_clean()
        except OSError as error:
            raise LogDirFailed(f"cannot sync {self.directory}: {error}") from error


def _take_lock(file_system: FileSystem, path: str) -> int:
    lock_path = f"{path}/{layout.LOCK_FILE}"
    lock = file_system.lock(lock_path)
    if lock is None:
        raise StartError(f"data directory {path} is in use by another node (lock {lock_path})")
    return lock
