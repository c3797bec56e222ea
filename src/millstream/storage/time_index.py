"""`.timeindex`: the offset of the largest timestamp so far.

An entry (timestamp, offset - base offset) says: when it was written, no record of the
segment was newer than `timestamp`, and the batch that ends at `offset` has it. The timestamps
of entries grow strictly, whatever producers send.
"""

import struct
from typing import Final

from millstream.storage.index_file import EntryFile

ENTRY: Final = struct.Struct(">qi")
ENTRY_BYTES: Final = ENTRY.size


class TimeIndex:
    __slots__ = ("_last_timestamp_ms", "base_offset", "entries")

    def __init__(self, entries: EntryFile, base_offset: int) -> None:
        self.entries = entries
        self.base_offset = base_offset
        self._last_timestamp_ms: int | None = None

    @property
    def count(self) -> int:
        return self.entries.count

    def append_if_newer(self, *, timestamp_ms: int, offset: int) -> None:
        if timestamp_ms > self.load():
            self.entries.append(ENTRY.pack(timestamp_ms, offset - self.base_offset))
            self._last_timestamp_ms = timestamp_ms

    def load(self) -> int:
        """The newest timestamp that has an entry, -1 for none. Reads the file only once."""
        if self._last_timestamp_ms is None:
            last = self.last()
            self._last_timestamp_ms = -1 if last is None else last[0]
        return self._last_timestamp_ms

    def lookup_before(self, timestamp_ms: int) -> tuple[int, int] | None:
        """(timestamp, offset) of the last entry that is older than `timestamp_ms`.

        Strictly older: then nothing at or before that offset can be the answer, even if several
        batches share one timestamp.
        """
        low, high = 0, self.entries.count
        while low < high:
            middle = (low + high) // 2
            if ENTRY.unpack(self.entries.entry(middle))[0] < timestamp_ms:
                low = middle + 1
            else:
                high = middle
        return self.get(low - 1) if low else None

    def get(self, number: int) -> tuple[int, int]:
        timestamp_ms, relative = ENTRY.unpack(self.entries.entry(number))
        return timestamp_ms, self.base_offset + relative

    def last(self) -> tuple[int, int] | None:
        count = self.entries.count
        return self.get(count - 1) if count else None

    def truncate_to_offset(self, next_offset: int) -> None:
        """Keep the entries for offsets below `next_offset`."""
        count = self.entries.count
        while count and self.get(count - 1)[1] >= next_offset:
            count -= 1
        self.entries.truncate(count)
        self._last_timestamp_ms = None

    def replace(self, entries: bytes) -> None:
        self.entries.replace(entries)
        self._last_timestamp_ms = None
