"""Creates partition directories, as a whole or not at all, and removes them later."""

import errno
import os
from heapq import heappop, heappush
from typing import Final

from millstream.errors import KafkaCode, KafkaError
from millstream.model import TopicId
from millstream.storage import layout
from millstream.storage.checkpoints import format_partition_metadata
from millstream.storage.files import FileSystem
from millstream.storage.values import storage_failure

# Errors of a file system without links, with too many to one file, or without the first.
_NO_LINKS: Final = (errno.EMLINK, errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOENT)


class PartitionDirectories:
    def __init__(self, file_system: FileSystem) -> None:
        self._file_system = file_system
        # A heap of due times and paths.
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
            problem = f"{path} already exists and belongs to no topic; move it away"
            raise KafkaError(KafkaCode.KAFKA_STORAGE_ERROR, problem) from error
        except OSError as error:
            raise storage_failure(error, path) from error

    def write_metadata(self, path: str, topic_id: TopicId, *, sibling: str | None) -> None:
        """Write the topic id; `sibling` is another directory of the same topic.

        All partitions of a topic have the same file, and it is only ever replaced: a link to it
        costs a tenth of another file.
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
        """Remove half a partition, so that the next start does not find it."""
        try:
            self._remove_tree(path)
        except OSError:
            # Without a descriptor left, even that fails. The next attempt does it.
            self._half_made.add(path)

    def remove_later(self, path: str, *, due_ms: int) -> None:
        heappush(self._deleted, (due_ms, path))

    def take_due(self, now_ms: int) -> list[str]:
        """All those to be removed now; for `remove`."""
        due = []
        while self._deleted and self._deleted[0][0] <= now_ms:
            due.append(heappop(self._deleted)[1])
        return due

    def remove(self, paths: list[str]) -> None:
        """May run in a thread. Raises OSError; the rest is due again."""
        while paths:
            try:
                self._remove_tree(paths[-1])
            except OSError:
                for path in paths:
                    heappush(self._deleted, (0, path))
                raise
            paths.pop()

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
        file_system.make_directory(path)
    except FileExistsError:
        return
    except FileNotFoundError:
        make_with_parents(file_system, os.path.dirname(os.path.abspath(path)))
        file_system.make_directory(path)
