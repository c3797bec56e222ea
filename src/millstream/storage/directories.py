"""Partition directories as they come and go: made whole or not at all, removed in good time."""

import errno
import os
from typing import Final

from millstream.errors import KafkaCode, KafkaError
from millstream.model import TopicId
from millstream.storage import layout
from millstream.storage.checkpoints import format_partition_metadata
from millstream.storage.files import FileSystem
from millstream.storage.values import storage_failure

# What a file system says that has no links, or not so many to one file, or lost the first.
_NO_LINKS: Final = (errno.EMLINK, errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOENT)


class PartitionDirectories:
    def __init__(self, file_system: FileSystem) -> None:
        self._file_system = file_system
        self._deleted: list[tuple[int, str]] = []
        # Of partitions whose creation failed, still to be removed.
        self._half_made: set[str] = set()

    def make(self, path: str) -> None:
        """An empty directory. Raises KafkaError, LogDirFailed or NoSpace."""
        try:
            if path in self._half_made:
                self._remove_tree(path)
                self._half_made.discard(path)
            self._file_system.make_directory(path)
        except FileExistsError as error:
            problem = f"{path} is there already and belongs to no topic; move it away"
            raise KafkaError(KafkaCode.KAFKA_STORAGE_ERROR, problem) from error
        except OSError as error:
            raise storage_failure(error, path) from error

    def write_metadata(self, path: str, topic_id: TopicId, *, sibling: str | None) -> None:
        """Whose directory this is; `sibling` is another one of the same topic.

        All partitions of a topic have the same file, and it is only ever replaced: one more
        name for it costs a tenth of one more file.
        """
        name = layout.PARTITION_METADATA_FILE
        if sibling is not None:
            try:
                self._file_system.link(f"{sibling}/{name}", f"{path}/{name}")
                return
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
        descriptor = self._file_system.open(f"{path}/{name}", create=True)
        try:
            self._file_system.write_at(descriptor, format_partition_metadata(topic_id), 0)
        finally:
            self._file_system.close(descriptor)

    def undo(self, path: str) -> None:
        """Half a partition must not be found at the next start."""
        try:
            self._remove_tree(path)
        except OSError:
            # Without a descriptor left, not even that works. The next attempt does it.
            self._half_made.add(path)

    def remove_later(self, path: str, *, due_ms: int) -> None:
        self._deleted.append((due_ms, path))

    def sweep(self, now_ms: int) -> None:
        waiting = []
        for due_ms, path in self._deleted:
            if due_ms <= now_ms:
                self._remove_tree(path)
            else:
                waiting.append((due_ms, path))
        self._deleted = waiting

    def _remove_tree(self, path: str) -> None:
        try:
            for info in self._file_system.list(path):
                inner = f"{path}/{info.name}"
                if info.is_directory:
                    self._remove_tree(inner)
                else:
                    self._file_system.remove(inner)
            self._file_system.remove_directory(path)
        except FileNotFoundError:
            return


def make_with_parents(file_system: FileSystem, path: str) -> None:
    try:
        file_system.list(path)
    except FileNotFoundError:
        make_with_parents(file_system, os.path.dirname(os.path.abspath(path)))
        file_system.make_directory(path)
