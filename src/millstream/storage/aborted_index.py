"""`.txnindex`: the aborted transactions that end in a segment.

Consumers that read committed records only get this list with their bytes, and drop what
belongs to it. The file exists only for segments that saw an abort.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

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
        self.entries.append(
            ENTRY.pack(
                _VERSION,
                aborted.producer_id,
                aborted.first_offset,
                aborted.last_offset,
                aborted.last_stable_offset,
            )
        )

    def __iter__(self) -> Iterator[AbortedTransaction]:
        """In the order of their last offsets. Raises ValueError on an unknown version."""
        for number in range(self.entries.count):
            version, *fields = ENTRY.unpack(self.entries.entry(number))
            if version != _VERSION:
                raise ValueError(f"aborted-transaction entry of version {version}")
            yield AbortedTransaction(*fields)

    def truncate_to_offset(self, next_offset: int) -> None:
        kept = 0
        for aborted in self:
            if aborted.last_offset >= next_offset:
                break
            kept += 1
        self.entries.truncate(kept)
