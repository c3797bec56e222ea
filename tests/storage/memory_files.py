"""A file system in memory that can be full, broken, or lose power.

Names and bytes that were not synced are gone after `cut_power`, except for what the test
asks to keep: a disk may write pages in any order.
"""

import errno
import os
import random

from millstream.storage.files import Data, FileInfo

# Much smaller than a real page, so that small logs have holes.
PAGE_BYTES = 128


class _Inode:
    def __init__(self) -> None:
        self.data = bytearray()
        self.synced = b""


def _torn(inode: _Inode, chance: random.Random) -> bytearray:
    """A mixture of the synced and the written content, in small pages."""
    written, synced = bytes(inode.data), inode.synced
    size = chance.choice([len(synced), len(written), chance.randint(0, len(written))])
    size = max(size, min(len(synced), len(written)))
    data = bytearray(size)
    data[: len(synced)] = synced[:size]
    for start in range(0, size, PAGE_BYTES):
        if chance.random() < 0.6:
            data[start : start + PAGE_BYTES] = written[start : min(start + PAGE_BYTES, size)].ljust(
                len(data[start : start + PAGE_BYTES]), b"\0"
            )
    return data


class MemoryFileSystem:
    def __init__(self) -> None:
        self._names: dict[str, _Inode] = {}
        self._synced_names: dict[str, _Inode] = {}
        self._directories: set[str] = {"/"}
        self._open: dict[int, _Inode] = {}
        self._next_descriptor = 3
        self.boot = "boot-1"
        # Bytes that may still be written; None for a disk without end.
        self.free_bytes: int | None = None
        self.write_error: int | None = None
        self.sync_error: int | None = None
        self.open_error: int | None = None
        self.link_error: int | None = None
        self.descriptors_max = 0
        self.syncs = 0
        self.written_back: list[tuple[int, int]] = []

    # What a test looks at and does

    def data(self, path: str) -> bytearray:
        return self._names[path].data

    def paths(self) -> list[str]:
        return sorted(self._names)

    @property
    def open_count(self) -> int:
        return len(self._open)

    def cut_power(self, *, keep: bool = False) -> None:
        """Forget what was not synced; `keep` stands for pages that made it all the same."""
        self.boot += "+"
        self._open.clear()
        if not keep:
            self._names = dict(self._synced_names)
            for inode in self._names.values():
                inode.data = bytearray(inode.synced)

    def cut_power_at_random(self, chance: random.Random) -> None:
        """What was not synced is there, gone, or there in part: page by page, name by name."""
        self.boot += "+"
        self._open.clear()
        changed = set(self._names) ^ set(self._synced_names)
        changed |= {
            name
            for name in set(self._names) & set(self._synced_names)
            if self._names[name] is not self._synced_names[name]
        }
        for name in sorted(changed):
            source = self._names if chance.random() < 0.5 else self._synced_names
            if name in source:
                self._synced_names[name] = source[name]
            else:
                self._synced_names.pop(name, None)
        self._names = dict(self._synced_names)
        for name in sorted(self._names):
            inode = self._names[name]
            if inode.data != inode.synced:
                inode.data = _torn(inode, chance)
            inode.synced = bytes(inode.data)

    def kill(self) -> None:
        """The process dies: descriptors are gone, the page cache is not."""
        self._open.clear()

    # FileSystem

    def open(self, path: str, *, create: bool) -> int:
        if self.open_error is not None:
            raise OSError(self.open_error, os.strerror(self.open_error))
        inode = self._names.get(path)
        if inode is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            if os.path.dirname(path) not in self._directories:
                raise FileNotFoundError(errno.ENOENT, "no such directory", path)
            inode = self._names[path] = _Inode()
        descriptor = self._next_descriptor
        self._next_descriptor += 1
        self._open[descriptor] = inode
        self.descriptors_max = max(self.descriptors_max, len(self._open))
        return descriptor

    def close(self, descriptor: int) -> None:
        del self._open[descriptor]

    def read_at(self, descriptor: int, length: int, position: int) -> bytes:
        return bytes(self._open[descriptor].data[position : position + length])

    def write_at(self, descriptor: int, data: Data, position: int) -> int:
        if self.write_error is not None:
            raise OSError(self.write_error, os.strerror(self.write_error))
        length = len(data)
        if self.free_bytes is not None:
            if self.free_bytes == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            length = min(length, self.free_bytes)
            self.free_bytes -= length
        content = self._open[descriptor].data
        if position > len(content):
            content += bytes(position - len(content))
        content[position : position + length] = data[:length]
        return length

    def truncate(self, descriptor: int, size_bytes: int) -> None:
        content = self._open[descriptor].data
        del content[size_bytes:]
        content += bytes(size_bytes - len(content))

    def sync(self, descriptor: int) -> None:
        self._fail_sync()
        inode = self._open[descriptor]
        inode.synced = bytes(inode.data)

    def sync_directory(self, path: str) -> None:
        self._fail_sync()
        if path not in self._directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        inside = {name for name in self._names if os.path.dirname(name) == path}
        gone = {name for name in self._synced_names if os.path.dirname(name) == path} - inside
        for name in inside:
            self._synced_names[name] = self._names[name]
        for name in gone:
            del self._synced_names[name]

    def sync_everything(self, descriptor: int) -> bool:
        self._fail_sync()
        for inode in self._names.values():
            inode.synced = bytes(inode.data)
        self._synced_names = dict(self._names)
        return True

    def write_back(self, descriptor: int, position: int, size_bytes: int) -> None:
        """A hint: after a power cut nothing of it need be there."""
        self.written_back.append((position, size_bytes))

    def _fail_sync(self) -> None:
        self.syncs += 1
        if self.sync_error is not None:
            raise OSError(self.sync_error, os.strerror(self.sync_error))

    def link(self, old: str, new: str) -> None:
        if self.link_error is not None:
            raise OSError(self.link_error, os.strerror(self.link_error), old)
        self._names[new] = self._names[old]

    def rename(self, old: str, new: str) -> None:
        if old in self._directories:
            self._directories.remove(old)
            self._directories.add(new)
            for name in [name for name in self._names if name.startswith(old + "/")]:
                self._names[new + name[len(old) :]] = self._names.pop(name)
            return
        if old not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such file", old)
        self._names[new] = self._names.pop(old)

    def remove(self, path: str) -> None:
        if path not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        del self._names[path]

    def make_directory(self, path: str) -> None:
        if path in self._directories:
            raise FileExistsError(errno.EEXIST, "directory exists", path)
        self._directories.add(path)

    def remove_directory(self, path: str) -> None:
        self._directories.remove(path)

    def list(self, path: str) -> list[FileInfo]:
        if path not in self._directories:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        files = [
            FileInfo(os.path.basename(name), len(inode.data), 0, False)
            for name, inode in self._names.items()
            if os.path.dirname(name) == path
        ]
        inside = [name for name in self._directories if os.path.dirname(name) == path != name]
        return files + [FileInfo(os.path.basename(name), 0, 0, True) for name in inside]

    def device(self, path: str) -> int:
        return 1

    def lock(self, path: str) -> int | None:
        return self.open(path, create=True)

    def identity(self, path: str) -> str | None:
        return self.boot
