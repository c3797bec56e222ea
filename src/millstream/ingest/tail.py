"""A log file that is followed through rotation and truncation.

A name stands for several files, one after another: each is a generation. A file is known by
its inode and by the bytes it begins with, because inodes are used again and `copytruncate`
keeps them. When a file was renamed away it is read to its end first, then those that came
between, by age, then the one that has the name now. When a file was truncated, what was not
read of it yet is read from its copy.

Knows files. Does not know topics, acknowledgements or time: it is asked again later.
"""

import os
import re
import stat
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from millstream.ingest.lines import Line, LineSplitter

_READ_BYTES: Final = 256 * 1024
_HEAD_BYTES_MAX: Final = 256
# Of a file, whatever its name: device and inode.
_Identity = tuple[int, int]


@dataclass(frozen=True, slots=True)
class FileMark:
    """Which file, and how far: everything before `position` is done."""

    device: int
    inode: int
    position: int
    head_length: int
    head_crc: int


@dataclass(slots=True)
class TailCounts:
    rotations: int = 0
    truncations: int = 0
    # A file that was not read to its end could not be found again.
    gaps: int = 0


class Tail:
    """`read` gives the next lines, until `is_at_end`; later there may be more."""

    def __init__(self, path: Path, mark: FileMark | None, *, line_bytes_max: int) -> None:
        self.path = path
        self.counts = TailCounts()
        self._line_bytes_max = line_bytes_max
        self._generation = 0
        self._file: BinaryIO | None = None
        # Nothing more for now; an empty read alone may be a part of a long line.
        self.is_at_end = True
        self._splitter = LineSplitter(position=0, line_bytes_max=line_bytes_max)
        self._heads: dict[int, tuple[int, int, int, int]] = {}
        # Files to read before the one that has the name, by their identities: names change.
        self._due: set[_Identity] = set()
        if mark is not None:
            self._resume(mark)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def read(self) -> list[Line]:
        if self._file is None:
            named = _open(self.path)
            if named is None:
                return []
            self._start(named, position=0)
        assert self._file is not None
        data = self._file.read(_READ_BYTES)
        # Asked after reading: the file may be cut at any moment, and this is from before it.
        if self._was_cut():
            return self._leave_cut()
        self.is_at_end = not data
        if data:
            return self._take(data)
        return self._leave() if self._was_replaced() else []

    def flush(self) -> list[Line]:
        """The last line where the file does not end with a newline."""
        return self._own(self._splitter.flush())

    def mark(self, generation: int, position: int) -> FileMark:
        """For the end of a line that `read` gave."""
        device, inode, length, crc = self._heads[generation]
        for old in [each for each in self._heads if each < generation]:
            del self._heads[old]
        return FileMark(device, inode, position, length, crc)

    # -- opening -------------------------------------------------------------------------

    def _resume(self, mark: FileMark) -> None:
        named = _open_same(self.path, mark)
        if named is not None:
            self._start(named, position=mark.position)
            return
        rotated = self._open_rotated(mark)
        if rotated is not None:
            self._start(rotated, position=mark.position)
            return
        self.counts.gaps += 1

    def _open_rotated(self, mark: FileMark) -> BinaryIO | None:
        """The file, or its copy, that holds what was read; those that came after it are due."""
        for each in _siblings(self.path):
            file = _open_same(each.path, mark)
            if file is not None:
                newer = _newer(_siblings(self.path), os.fstat(file.fileno()))
                self._due = {each.identity for each in newer}
                return file
        return None

    def _start(self, file: BinaryIO, *, position: int) -> None:
        self._file = file
        self._generation += 1
        self.is_at_end = False
        file.seek(position)
        self._splitter = LineSplitter(position=position, line_bytes_max=self._line_bytes_max)
        status = os.fstat(file.fileno())
        head = os.pread(file.fileno(), min(position, _HEAD_BYTES_MAX), 0)
        self._heads[self._generation] = (
            status.st_dev,
            status.st_ino,
            len(head),
            zlib.crc32(head),
        )

    def _extend_head(self, data: bytes) -> None:
        """With what was read next; the file itself may be another one by now."""
        device, inode, length, crc = self._heads[self._generation]
        more = data[: _HEAD_BYTES_MAX - length]
        if more:
            self._heads[self._generation] = device, inode, length + len(more), zlib.crc32(more, crc)

    # -- at the end of what is there -------------------------------------------------------

    def _was_cut(self) -> bool:
        assert self._file is not None
        if os.fstat(self._file.fileno()).st_size < self._splitter.next_position:
            return True
        _, _, length, crc = self._heads[self._generation]
        return zlib.crc32(os.pread(self._file.fileno(), length, 0)) != crc

    def _leave_cut(self) -> list[Line]:
        """Goes on in the copy that was made before, in mid-line and in mid-block."""
        assert self._file is not None
        self.counts.truncations += 1
        device, inode, length, crc = self._heads[self._generation]
        position = self._splitter.next_position
        mark = FileMark(device, inode, position, length, crc)
        copy = self._open_rotated(mark)
        if copy is not None:
            copy.seek(position)
            self._file.close()
            self._file = copy
            self.is_at_end = False
            return []
        self.counts.gaps += 1
        lines = self._own(self._splitter.flush())
        self._start(self._file, position=0)
        return lines

    def _was_replaced(self) -> bool:
        if self._due:
            return True
        assert self._file is not None
        try:
            named = self.path.stat()
        except FileNotFoundError:
            return False
        return _identity(named) != _identity(os.fstat(self._file.fileno()))

    def _leave(self) -> list[Line]:
        """The writer may have gone on in the old file until it saw the new one; that is read."""
        assert self._file is not None
        last = self._file.read(_READ_BYTES)
        if last:
            self.is_at_end = False
            return self._take(last)
        found = self._open_following(self._file)
        if found is None:
            return []
        following, data = found
        self.counts.rotations += 1
        lines = self._own(self._splitter.flush())
        self._file.close()
        self._start(following, position=0)
        following.seek(len(data))
        return lines + self._take(data)

    def _open_following(self, ours: BinaryIO) -> tuple[BinaryIO, bytes] | None:
        """The oldest file that is newer than ours, and what was read of it.

        Rotations go on meanwhile. So the names are looked up each time, and after a part of the
        file that has the name was read: if it had been renamed or cut before, it is among the
        others. While it is empty, it is not begun: nothing could tell later whether it was cut.
        """
        following = _open(self.path)
        data = b"" if following is None else following.read(_READ_BYTES)
        siblings = _siblings(self.path)
        newer = [
            each
            for each in _newer(siblings, os.fstat(ours.fileno()))
            if each.size and not _is_copy(each.path, data)
        ]
        if newer or not data:
            if following is not None:
                following.close()
            if not newer:
                return None
            following, data = _open(newer[0].path), b""
            if following is None or _identity(os.fstat(following.fileno())) != newer[0].identity:
                # Renamed since the lookup.
                return self._open_following(ours)
        assert following is not None
        # What was packed or deleted before its turn is missing.
        self.counts.gaps += len(self._due - {each.identity for each in siblings})
        self._due = {each.identity for each in newer[1:]}
        return following, data

    def _take(self, data: bytes) -> list[Line]:
        self._extend_head(data)
        return self._own(self._splitter.split(data))

    def _own(self, lines: list[Line]) -> list[Line]:
        for line in lines:
            line.generation = self._generation
        return lines


def _open(path: Path) -> BinaryIO | None:
    try:
        return path.open("rb", buffering=0)
    except FileNotFoundError:
        return None


def _open_same(path: Path, mark: FileMark) -> BinaryIO | None:
    """A file that holds what was read up to the mark; its name and inode may be new."""
    try:
        file = path.open("rb", buffering=0)
    except OSError:
        return None
    if _is_same(file, mark):
        return file
    file.close()
    return None


def _is_same(file: BinaryIO, mark: FileMark) -> bool:
    status = os.fstat(file.fileno())
    if status.st_size < mark.position:
        return False
    if not mark.head_length:
        return (status.st_dev, status.st_ino) == (mark.device, mark.inode)
    return zlib.crc32(os.pread(file.fileno(), mark.head_length, 0)) == mark.head_crc


def _identity(status: os.stat_result) -> _Identity:
    return status.st_dev, status.st_ino


@dataclass(frozen=True, slots=True)
class _Rotated:
    path: Path
    identity: _Identity
    modified_ns: int
    size: int


def _siblings(path: Path) -> list[_Rotated]:
    """Rotated files of this name (`x.log.1`, `x.log-20260101`), newest first.

    Packed ones are left out: their contents cannot be compared with what was read.
    """
    found = []
    rotated = re.compile(re.escape(path.name) + r"[.-]\d[\d.-]*")
    for each in path.parent.iterdir():
        if rotated.fullmatch(each.name):
            # It may be renamed at this moment.
            with suppress(FileNotFoundError):
                status = each.stat()
                if stat.S_ISREG(status.st_mode):
                    found.append(
                        _Rotated(each, _identity(status), status.st_mtime_ns, status.st_size)
                    )
    return sorted(found, key=lambda each: (each.modified_ns, each.path), reverse=True)


def _newer(siblings: list[_Rotated], ours: os.stat_result) -> list[_Rotated]:
    """Files that had the name after ours and lost it again, oldest first."""
    return [
        each
        for each in reversed(siblings)
        if each.identity != _identity(ours) and each.modified_ns > ours.st_mtime_ns
    ]


def _is_copy(path: Path, data: bytes) -> bool:
    """Whether a file is a copy, maybe not yet whole, of the one that begins with this data."""
    file = _open(path)
    if file is None:
        return False
    with file:
        copied = file.read(len(data))
    return len(copied) >= _HEAD_BYTES_MAX and data.startswith(copied)
