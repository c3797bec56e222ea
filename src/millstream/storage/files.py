"""The file system as the log engine sees it, and files that open descriptors on demand.

Everything the engine does to a disk is one of the operations of `FileSystem`, so a
simulated disk that forgets unsynced bytes can replace it. Ten thousand partitions have
more files than a process may have descriptors: a `LogFile` is opened when it is used, and
the `DescriptorCache` closes files that have not been used lately. It never closes a file that
is pinned (a thread or the kernel is using the number) or that has unsynced bytes of this process
(the kernel reports an error in writing them back only to open descriptors).
"""

import errno
import os
from collections import OrderedDict
from typing import Final, Protocol

from millstream.lazy_dataclass import dataclass
from millstream.storage import linux

Data = bytes | bytearray | memoryview

# How many candidates the cache checks before it gives up and exceeds its limit: with
# thousands of dirty files a full search at every open would cost more than it saves.
_CLOSE_CANDIDATES_MAX: Final = 256
# How many to close when the process has no descriptor left.
_CLOSED_TOGETHER: Final = 8


@dataclass(slots=True)
class FileInfo:
    name: str
    size_bytes: int
    modified_ms: int
    is_directory: bool


class FileSystem(Protocol):
    """What the engine needs from a disk. All failures are OSError."""

    def open(self, path: str, *, create: bool) -> int: ...
    def close(self, descriptor: int) -> None: ...
    def read_at(self, descriptor: int, length: int, position: int) -> bytes: ...
    def write_at(self, descriptor: int, data: Data, position: int) -> int: ...
    def truncate(self, descriptor: int, size_bytes: int) -> None: ...
    def sync(self, descriptor: int) -> None: ...
    def sync_directory(self, path: str) -> None: ...
    def sync_everything(self, descriptor: int) -> bool:
        """Sync the whole file system that holds the descriptor; False if that is impossible."""
        ...

    def write_back(self, descriptor: int, position: int, size_bytes: int) -> None:
        """Have a piece of a file written before it is synced, so that the sync has less to do."""
        ...

    def rename(self, old: str, new: str) -> None: ...
    def link(self, old: str, new: str) -> None:
        """A second name for a file. Not every file system supports it."""
        ...

    def remove(self, path: str) -> None: ...
    def make_directory(self, path: str) -> None: ...
    def remove_directory(self, path: str) -> None: ...
    def list(self, path: str) -> list[FileInfo]: ...
    def device(self, path: str) -> int: ...
    def lock(self, path: str) -> int | None:
        """Take the lock file for this process; None if another one holds it."""
        ...

    def identity(self, path: str) -> str | None:
        """This boot and this mount: equal to a stored one only if there was no power cut since."""
        ...


class OsFileSystem:
    """The real one. Only the owner can access what it creates, and it follows no symbolic
    link: a link in a data directory could make the node write anywhere."""

    close = staticmethod(os.close)
    read_at = staticmethod(os.pread)
    write_at = staticmethod(os.pwrite)
    truncate = staticmethod(os.ftruncate)
    rename = staticmethod(os.rename)
    link = staticmethod(os.link)
    remove_directory = staticmethod(os.rmdir)
    lock = staticmethod(linux.lock_file)
    identity = staticmethod(linux.boot_and_mount)
    sync_everything = staticmethod(linux.sync_file_system)
    write_back = staticmethod(linux.write_back)

    def open(self, path: str, *, create: bool) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
        return os.open(path, flags, 0o600)

    def sync(self, descriptor: int) -> None:
        linux.sync_data(descriptor)

    def sync_directory(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def make_directory(self, path: str) -> None:
        os.mkdir(path, 0o700)

    def device(self, path: str) -> int:
        return os.stat(path).st_dev

    def list(self, path: str) -> list[FileInfo]:
        found = []
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_symlink():
                    raise OSError(errno.ELOOP, "a symbolic link in a data directory", entry.path)
                try:
                    status = entry.stat()
                except FileNotFoundError:
                    # Removed in the meantime.
                    continue
                found.append(
                    FileInfo(
                        entry.name,
                        status.st_size,
                        status.st_mtime_ns // 1_000_000,
                        entry.is_dir(),
                    )
                )
        return found


class DescriptorCache:
    """Keeps about `limit` files open; closes the least recently used ones first.

    Files with unsynced bytes stay open and may exceed the limit, but never twice: the process
    needs descriptors for other things, and for the sync that lets them close.
    """

    def __init__(self, file_system: FileSystem, limit: int) -> None:
        self.file_system = file_system
        self.limit = limit
        self.open_count = 0
        # Oldest first. A file that was used since it was queued gets a second chance, which
        # is nearly least-recently-used and costs a use one attribute store.
        self._queue: OrderedDict[LogFile, None] = OrderedDict()

    def open(self, file: "LogFile", *, create: bool = False) -> int:
        if self.open_count >= self.limit:
            self._make_room(self.limit)
            if self.open_count >= 2 * self.limit:
                raise OSError(errno.EMFILE, "too many files with unsynced bytes", file.path)
        try:
            file.descriptor = self.file_system.open(file.path, create=create)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            # Something else took the process's descriptors: keep fewer files open.
            self._make_room(self.open_count - _CLOSED_TOGETHER)
            file.descriptor = self.file_system.open(file.path, create=create)
        self.open_count += 1
        self._queue[file] = None
        return file.descriptor

    @property
    def is_short(self) -> bool:
        """Would a sync now let files be closed that must stay open otherwise?"""
        return self.open_count >= self.limit

    def close(self, file: "LogFile") -> None:
        if file.descriptor < 0:
            return
        descriptor, file.descriptor = file.descriptor, -1
        self.open_count -= 1
        self._queue.pop(file, None)
        self.file_system.close(descriptor)

    def _make_room(self, limit: int) -> None:
        queue = self._queue
        # Two passes: the first may only find that everything was used.
        for _ in range(min(2 * len(queue), _CLOSE_CANDIDATES_MAX)):
            if self.open_count < limit:
                return
            file = next(iter(queue))
            if file.was_used or file.pins or file.is_dirty:
                file.was_used = False
                queue.move_to_end(file)
            else:
                self.close(file)


class LogFile:
    """A file that is appended to, read anywhere, and cut. `size_bytes` is what we wrote."""

    __slots__ = (
        "_cache",
        "_is_close_due",
        "_is_removal_due",
        "changes",
        "descriptor",
        "is_dirty",
        "needs_sync",
        "path",
        "pins",
        "size_bytes",
        "was_used",
    )

    def __init__(
        self, cache: DescriptorCache, path: str, *, size_bytes: int, needs_sync: bool
    ) -> None:
        self._cache = cache
        self.path = path
        self.size_bytes = size_bytes
        # Indexes and the like can be rebuilt, so they need not be on the disk.
        self.needs_sync = needs_sync
        self.descriptor = -1
        self.pins = 0
        self.is_dirty = False
        # Counts writes, so that the end of a sync can tell whether there were more since.
        self.changes = 0
        self.was_used = False
        self._is_close_due = False
        self._is_removal_due = False

    def create(self) -> None:
        """Create the file, empty. Without this, using a missing file is an error."""
        descriptor = self._cache.open(self, create=True)
        # An earlier start may have left something under this name. An empty file is not cut: ext4
        # takes that for an overwriting, and has all of the file written when it is closed.
        if self._cache.file_system.read_at(descriptor, 1, 0):
            self._cache.file_system.truncate(descriptor, 0)
        self.size_bytes = 0

    def pin(self) -> int:
        """The descriptor, which stays open and the same file until `unpin`."""
        descriptor = self.descriptor
        if descriptor < 0:
            descriptor = self._cache.open(self)
        self.pins += 1
        self.was_used = True
        return descriptor

    def unpin(self) -> None:
        assert self.pins > 0, f"{self.path} is not pinned"
        self.pins -= 1
        if self.pins == 0:
            if self._is_removal_due:
                self.remove_when_unpinned()
            elif self._is_close_due:
                self.close()

    def read_at(self, position: int, length: int) -> bytes:
        descriptor = self.descriptor
        if descriptor < 0:
            descriptor = self._cache.open(self)
        self.was_used = True
        return self._cache.file_system.read_at(descriptor, length, position)

    def append(self, data: Data) -> int:
        """Write at the end and return the position. All of it, or nothing and OSError."""
        descriptor = self.descriptor
        if descriptor < 0:
            descriptor = self._cache.open(self)
        position = self.size_bytes
        length = len(data)
        try:
            written = self._cache.file_system.write_at(descriptor, data, position)
            if written != length:
                self._write_rest(descriptor, memoryview(data)[written:], position + written)
        except OSError:
            # Part of it may be in the file. If this fails too, the disk has failed.
            self._cache.file_system.truncate(descriptor, position)
            raise
        self.size_bytes = position + length
        self.is_dirty = self.needs_sync
        self.was_used = True
        self.changes += 1
        return position

    def _write_rest(self, descriptor: int, data: memoryview, position: int) -> None:
        while data:
            written = self._cache.file_system.write_at(descriptor, data, position)
            position += written
            data = data[written:]

    def truncate(self, size_bytes: int) -> None:
        descriptor = self.pin()
        try:
            self._cache.file_system.truncate(descriptor, size_bytes)
        finally:
            self.unpin()
        self.size_bytes = size_bytes
        self.is_dirty = self.needs_sync
        self.changes += 1

    def rename(self, path: str) -> None:
        self._cache.file_system.rename(self.path, path)
        self.path = path

    def close(self) -> None:
        """Close the descriptor, now or when the last user is done with it."""
        self._is_close_due = self.pins > 0
        if self.pins == 0:
            self._cache.close(self)

    def remove_when_unpinned(self) -> None:
        """Delete the file, now or when the last reader is done with it."""
        if self.pins:
            self._is_removal_due = True
            return
        self._is_removal_due = False
        self.is_dirty = False
        self._cache.close(self)
        try:
            self._cache.file_system.remove(self.path)
        except FileNotFoundError:
            # Its directory was deleted, or it is an index that never had an entry.
            return


def read_file(file_system: FileSystem, path: str, *, bytes_max: int = 1 << 26) -> bytes | None:
    """A whole small file; None if there is none."""
    try:
        descriptor = file_system.open(path, create=False)
    except FileNotFoundError:
        return None
    try:
        parts: list[bytes] = []
        position = 0
        while position < bytes_max:
            part = file_system.read_at(descriptor, min(bytes_max - position, 1 << 16), position)
            if not part:
                break
            parts.append(part)
            position += len(part)
        return b"".join(parts)
    finally:
        file_system.close(descriptor)


def write_file(
    file_system: FileSystem,
    path: str,
    data: bytes,
    *,
    is_synced: bool,
    temporary: str | None = None,
) -> None:
    """Replace a small file: readers see the old one or the new one."""
    temporary = temporary or path + ".tmp"
    descriptor = file_system.open(temporary, create=True)
    try:
        file_system.truncate(descriptor, 0)
        written = 0
        while written < len(data):
            written += file_system.write_at(descriptor, data[written:], written)
        if is_synced:
            file_system.sync(descriptor)
    finally:
        file_system.close(descriptor)
    file_system.rename(temporary, path)
    if is_synced:
        file_system.sync_directory(os.path.dirname(path))
