"""`.txnindex`: the aborted transactions that end in a segment.

read_committed consumers get this list with their bytes, and drop the records that belong
to it. The file exists only for segments with an abort.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import Final

from millstream.lazy_dataclass import dataclass
from millstream.storage.index_file import EntryFile

ENTRY: Final = struct.Struct(">hqqqq")
ENTRY_BYTES: Final = ENTRY.size
_VERSION: Final = 0


@dataclass(slots=True)
class AbortedTransaction:
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class AbortedIndex:
    __slots__ = ("entries",)

    def __init__(self, entries: EntryFile) -> None:
        self.entries = entries

    def append(self, aborted: AbortedTransaction) -> None:
        self.entries.append(pack(aborted))

    def replace(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Replace the entries, and write them: nothing would show later that one is missing."""
        self.entries.replace(b"".join(pack(aborted) for aborted in transactions))
        if self.entries.count:
            self.entries.flush()

    def __iter__(self) -> Iterator[AbortedTransaction]:
        """In the order of their last offsets. Raises ValueError on an unknown version."""
        for number in range(self.entries.count):
            yield self._get(number)

    def is_sound(self) -> bool:
        """Whether the file is plausible: whole entries, in order."""
        if self.entries.file.size_bytes % ENTRY_BYTES:
            return False
        last_offset = -1
        try:
            for aborted in self:
                if not max(aborted.first_offset, last_offset) < aborted.last_offset:
                    return False
                last_offset = aborted.last_offset
        except ValueError:
            return False
        return True

    def _get(self, number: int) -> AbortedTransaction:
        version, *fields = ENTRY.unpack(self.entries.entry(number))
        if version != _VERSION:
            raise ValueError(f"aborted-transaction entry of version {version}")
        return AbortedTransaction(*fields)

    def between(self, from_offset: int, upto_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """The entries with records in [from_offset, upto_offset), and whether later segments can
        be skipped: everything before `upto_offset` was decided when an entry was written."""
        low, high = 0, self.entries.count
        while low < high:
            middle = (low + high) // 2
            if self._get(middle).last_offset < from_offset:
                low = middle + 1
            else:
                high = middle
        found = []
        for number in range(low, self.entries.count):
            aborted = self._get(number)
            if aborted.first_offset < upto_offset:
                found.append(aborted)
            if aborted.last_stable_offset >= upto_offset:
                return found, True
        return found, False

    def truncate_to_offset(self, next_offset: int) -> None:
        kept = 0
        for aborted in self:
            if aborted.last_offset >= next_offset:
                break
            kept += 1
        self.entries.truncate(kept)


def pack(aborted: AbortedTransaction) -> bytes:
    return ENTRY.pack(
        _VERSION,
        aborted.producer_id,
        aborted.first_offset,
        aborted.last_offset,
        aborted.last_stable_offset,
    )
