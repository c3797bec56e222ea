"""`.index`: the position of an offset in the segment's file, an entry per few kilobytes of log.

An entry is (last offset of a batch - base offset, position of that batch), both uint31.
Entries are a hint: `Segment` verifies the one it uses against the log.
"""

import struct
from typing import Final

from millstream.storage.index_file import EntryFile

ENTRY: Final = struct.Struct(">ii")
ENTRY_BYTES: Final = ENTRY.size


class OffsetIndex:
    __slots__ = ("base_offset", "entries")

    def __init__(self, entries: EntryFile, base_offset: int) -> None:
        self.entries = entries
        self.base_offset = base_offset

    @property
    def count(self) -> int:
        return self.entries.count

    def append(self, *, last_offset: int, position: int) -> None:
        self.entries.append(ENTRY.pack(last_offset - self.base_offset, position))

    def lookup(self, offset: int) -> tuple[int, int] | None:
        """(offset, position) of the last entry at or below `offset`."""
        low, high = 0, self.entries.count
        relative = offset - self.base_offset
        while low < high:
            middle = (low + high) // 2
            if ENTRY.unpack(self.entries.entry(middle))[0] <= relative:
                low = middle + 1
            else:
                high = middle
        return self.get(low - 1) if low else None

    def get(self, number: int) -> tuple[int, int]:
        relative, position = ENTRY.unpack(self.entries.entry(number))
        return self.base_offset + relative, position

    def last(self) -> tuple[int, int] | None:
        count = self.entries.count
        return self.get(count - 1) if count else None

    def first_from(self, position: int) -> tuple[int, int] | None:
        """(offset, position) of the first entry for a batch at `position` or later."""
        number = self._first_from(position)
        return self.get(number) if number < self.entries.count else None

    def truncate_to_position(self, position: int) -> None:
        """Keep the entries for batches that start before `position`."""
        self.entries.truncate(self._first_from(position))

    def _first_from(self, position: int) -> int:
        low, high = 0, self.entries.count
        while low < high:
            middle = (low + high) // 2
            if ENTRY.unpack(self.entries.entry(middle))[1] < position:
                low = middle + 1
            else:
                high = middle
        return low
