"""A file of fixed-size entries that grows at its end: the base of all indexes.

Entries wait in memory and are written many at a time: an index is a cache, so a crash that
loses its tail costs a rebuild, never data. Kafka makes the files of its active segment
larger than their entries, so zero entries at the end count as absent.
"""

from typing import Final

from millstream.storage.files import LogFile

# Entries that wait before they are written, in bytes: one write per page.
_PENDING_BYTES_MAX: Final = 4096
_PAGE_BYTES: Final = 4096


class EntryFile:
    __slots__ = ("_exists", "_page", "_page_start", "_pending", "_written", "entry_bytes", "file")

    def __init__(self, file: LogFile, *, entry_bytes: int, exists: bool) -> None:
        self.file = file
        self.entry_bytes = entry_bytes
        self._exists = exists
        # Whole entries in the file; -1 until it is needed.
        self._written = -1 if exists else 0
        self._pending = bytearray()
        self._page = b""
        self._page_start = 0

    @property
    def count(self) -> int:
        return self._written_count() + len(self._pending) // self.entry_bytes

    def _written_count(self) -> int:
        if self._written < 0:
            self._written = self._count_without_padding()
        return self._written

    def _count_without_padding(self) -> int:
        size = self.entry_bytes
        count = self.file.size_bytes // size
        empty = bytes(size)
        if count == 0 or self.file.read_at((count - 1) * size, size) != empty:
            return count
        low, high = 0, count - 1  # entry `high` is empty; find the first that is
        while low < high:
            middle = (low + high) // 2
            if self.file.read_at(middle * size, size) == empty:
                high = middle
            else:
                low = middle + 1
        return low

    def append(self, entry: bytes) -> None:
        self._pending += entry
        if len(self._pending) >= _PENDING_BYTES_MAX:
            try:
                self.flush()
            except OSError:
                # The append of data reports a full disk; entries can wait here.
                return

    def entry(self, number: int) -> bytes:
        size = self.entry_bytes
        written = self._written_count()
        if number >= written:
            start = (number - written) * size
            return bytes(self._pending[start : start + size])
        start = number * size - self._page_start
        if not 0 <= start <= len(self._page) - size:
            self._read_page(number)
            start = number * size - self._page_start
        return self._page[start : start + size]

    def _read_page(self, number: int) -> None:
        per_page = _PAGE_BYTES // self.entry_bytes
        self._page_start = (number // per_page) * per_page * self.entry_bytes
        end = self._written * self.entry_bytes
        length = min(per_page * self.entry_bytes, end - self._page_start)
        page = self.file.read_at(self._page_start, length)
        # Something else cut the file: zeros are entries that point nowhere, and users of an entry
        # verify it.
        self._page = page + bytes(length - len(page))

    def flush(self) -> None:
        """Write what waits. The file is then exactly as long as its entries."""
        end = self._written_count() * self.entry_bytes
        if not self._pending and self._exists and self.file.size_bytes == end:
            return
        if not self._exists:
            self.file.create()
            self._exists = True
        if self.file.size_bytes != end:
            self.file.truncate(end)
        if self._pending:
            self.file.append(bytes(self._pending))
            self._written += len(self._pending) // self.entry_bytes
            self._pending.clear()
            self._page = b""

    def truncate(self, count: int) -> None:
        written = self._written_count()
        if count >= written:
            del self._pending[(count - written) * self.entry_bytes :]
            return
        self._pending.clear()
        self._written = count
        self._page = b""
        if self._exists:
            self.file.truncate(count * self.entry_bytes)

    def replace(self, entries: bytes) -> None:
        """Replace the entries. Those that the file already has are left alone."""
        size_bytes = self.file.size_bytes
        kept = self.file.read_at(0, size_bytes) if self._exists and size_bytes else b""
        if len(kept) % self.entry_bytes or not entries.startswith(kept):
            self.file.truncate(0)
            kept = b""
        self._forget_cache(len(kept))
        self._pending += entries[len(kept) :]
        if len(self._pending) >= _PENDING_BYTES_MAX:
            self.flush()

    def _forget_cache(self, written_bytes: int) -> None:
        self._written = written_bytes // self.entry_bytes
        self._pending.clear()
        self._page = b""

    def bytes(self) -> bytes:
        """All entries; for tools and tests."""
        return b"".join(self.entry(number) for number in range(self.count))
