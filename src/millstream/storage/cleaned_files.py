"""What a round of compaction writes: new files, and the entries of their indexes.

A round runs beside clients, so neither may come in one large step. The bytes of a file go to
the disk while it is written, and a sync at the end finds little left: while a sync has much to
write, appends to other files wait for the journal of the file system. Entries are made from the
marks of one chunk at a time: the interpreter's lock is held meanwhile.
"""

import struct
from array import array
from collections.abc import Iterable
from typing import Final

from millstream.storage import time_index
from millstream.storage.files import FileSystem

# Written to the disk at once; some milliseconds of its time.
_PIECE_BYTES: Final = 4 << 20


class NewFile:
    """A file that is written from its beginning, over any old content."""

    def __init__(self, file_system: FileSystem, path: str) -> None:
        self._file_system = file_system
        self._descriptor = file_system.open(path, create=True)
        self._position = 0
        self._written_back = 0
        try:
            file_system.truncate(self._descriptor, 0)
        except OSError:
            file_system.close(self._descriptor)
            raise

    def __enter__(self) -> "NewFile":
        return self

    def __exit__(self, *error: object) -> None:
        self._file_system.close(self._descriptor)

    def append(self, data: bytes | bytearray) -> None:
        rest = memoryview(data)
        while rest:
            written = self._file_system.write_at(self._descriptor, rest, self._position)
            self._position += written
            rest = rest[written:]
        size_bytes = self._position - self._written_back
        if size_bytes >= _PIECE_BYTES:
            self._file_system.write_back(self._descriptor, self._written_back, size_bytes)
            self._written_back = self._position

    def sync(self) -> None:
        self._file_system.sync(self._descriptor)


class CleanedIndexes:
    """The entries of a segment's offset index and time index."""

    def __init__(self, base_offset: int) -> None:
        self._base_offset = base_offset
        self._newest_ms = -1
        self.offsets = bytearray()
        self.times = bytearray()

    def add(self, marks: bytes) -> None:
        """`marks` as in `Rewriter.take_marks`: four numbers for each batch that gets an entry."""
        numbers = array("q", marks)
        base_offset = self._base_offset
        entries = [0] * (len(numbers) // 2)
        entries[::2] = [last_offset - base_offset for last_offset in numbers[1::4]]
        entries[1::2] = numbers[0::4]
        self.offsets += struct.pack(f">{len(entries)}i", *entries)
        self._add_times(zip(numbers[2::4], numbers[3::4], strict=True))

    def end(self, max_timestamp_ms: int, offset: int) -> None:
        """The newest record of the segment, which may have come after the last mark."""
        self._add_times([(max_timestamp_ms, offset)])

    def _add_times(self, newest: Iterable[tuple[int, int]]) -> None:
        pack, base_offset = time_index.ENTRY.pack, self._base_offset
        for timestamp_ms, offset in newest:
            if timestamp_ms > self._newest_ms:
                self.times += pack(timestamp_ms, offset - base_offset)
                self._newest_ms = timestamp_ms
