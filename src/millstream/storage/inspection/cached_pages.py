"""Which parts of a file are in the page cache, and which of those are not on the disk yet.

Linux 6.5 can say (`cachestat`), at about 20 µs for each question.
"""

import ctypes
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_CACHESTAT_NR: Final = 451


class _Range(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint64), ("length", ctypes.c_uint64))


class _Stat(ctypes.Structure):
    _fields_ = (
        ("cached", ctypes.c_uint64),
        ("dirty", ctypes.c_uint64),
        ("writeback", ctypes.c_uint64),
        ("evicted", ctypes.c_uint64),
        ("recently_evicted", ctypes.c_uint64),
    )


@dataclass(frozen=True, slots=True)
class CachedPages:
    """Pages of one range: all, in the cache, and of those not yet written or being written."""

    pages: int
    cached: int
    dirty: int
    writeback: int

    @property
    def cached_share(self) -> float:
        return self.cached / self.pages if self.pages else 0.0

    @property
    def dirty_share(self) -> float:
        return (self.dirty + self.writeback) / self.pages if self.pages else 0.0


def cached_pages(descriptor: int, position: int, length: int) -> CachedPages | None:
    """None where the kernel or the file system cannot say. An empty range has no pages."""
    if not sys.platform.startswith("linux"):
        return None
    first = position // PAGE_BYTES
    pages = -(-(position + length) // PAGE_BYTES) - first if length else 0
    if not pages:
        # For the kernel a length of 0 would mean all of the file.
        return CachedPages(0, 0, 0, 0)
    asked = _Range(first * PAGE_BYTES, pages * PAGE_BYTES)
    found = _Stat()
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    if syscall(_CACHESTAT_NR, descriptor, ctypes.byref(asked), ctypes.byref(found), 0) != 0:
        return None
    return CachedPages(pages, found.cached, found.dirty, found.writeback)


def cache_map(descriptor: int, size_bytes: int, *, pieces: int) -> list[CachedPages]:
    """The file in at most `pieces` ranges of whole pages; empty where nothing is known."""
    pages = -(-size_bytes // PAGE_BYTES)
    step = max(-(-pages // pieces), 1) * PAGE_BYTES
    return _known(
        lambda at: cached_pages(descriptor, at, min(step, size_bytes - at)),
        range(0, size_bytes, step),
    )


def _known(look: Callable[[int], CachedPages | None], places: range) -> list[CachedPages]:
    found = []
    for at in places:
        one = look(at)
        if one is None:
            return []
        found.append(one)
    return found
