"""How the C library's allocator keeps memory that is free again.

A large request, or an answer of tens of megabytes, is there for a moment. glibc gives every thread
a separate arena, and after the first large block that is freed it takes such blocks from the
arenas, too, where anything small that lives on keeps them from being given back. After half an
hour of attacks, the arenas of a node had two hundred megabytes. One arena is enough where one
thread at a time runs Python, and large blocks come from the system and return to it.
"""

import ctypes
import sys
from typing import Final

# Numbers of mallopt's parameters, from malloc.h.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8

# Blocks of the hot paths are smaller: to get one from the system costs a page fault per page.
_LARGE_BLOCK_BYTES: Final = 2 << 20
# What may be free at the end of the heap before it is given back.
_FREE_END_BYTES: Final = 8 << 20


def keep_little_memory() -> None:
    """To be called before there are threads. No effect without glibc."""
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_ARENA_MAX, 1)
        mallopt(_MMAP_THRESHOLD, _LARGE_BLOCK_BYTES)
        mallopt(_TRIM_THRESHOLD, _FREE_END_BYTES)
