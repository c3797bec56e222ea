"""Is a range of a file in the page cache? Linux 6.5 can say (`cachestat`).

Pages count there from the time the disk is asked for them, so the last page of a range is tried,
too: `sendfile` would wait for it.

On other systems everything counts as cached: `sendfile` then reads from the disk on the
event loop, slower for other clients but correct.
"""

import ctypes
import errno
import fcntl
import os
import sys
from contextlib import suppress
from typing import Final

# Checked, warmed and sent in steps of this size.
WINDOW_BYTES: Final = 4 << 20
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_CACHESTAT_NR: Final = 451
_STEP_BYTES: Final = 1 << 20
# A file system or a sandbox without `splice`, or no descriptor left for the pipe.
_CANNOT_SPLICE: Final = frozenset(
    {errno.EINVAL, errno.ENOSYS, errno.EPERM, errno.EMFILE, errno.ENFILE}
)


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


def _load() -> "ctypes._NamedFuncPointer | None":
    if not sys.platform.startswith("linux"):
        return None
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    syscall.restype = ctypes.c_long
    return syscall


_syscall = _load()
_nowait: int = getattr(os, "RWF_NOWAIT", 0)


class Question:
    """What the kernel fills in, for one thread."""

    __slots__ = ("_range", "_range_pointer", "_stat", "_stat_pointer")

    def __init__(self) -> None:
        self._range = _Range()
        self._stat = _Stat()
        self._range_pointer = ctypes.byref(self._range)
        self._stat_pointer = ctypes.byref(self._stat)

    def is_cached(self, fd: int, position: int, length: int) -> bool:
        global _syscall
        if _syscall is None:
            return True
        first = position // _PAGE
        last = (position + length - 1) // _PAGE
        self._range.offset = first * _PAGE
        self._range.length = (last - first + 1) * _PAGE
        if _syscall(_CACHESTAT_NR, fd, self._range_pointer, self._stat_pointer, 0) != 0:
            # An older kernel, or a file system that keeps no page cache: do not ask again.
            _syscall = None
            return True
        if self._stat.cached < last - first + 1:
            return False
        return not _nowait or read_if_cached(fd, position + length - 1, 1) is not None


# For the thread of the event loop.
is_cached: Final = Question().is_cached


def read_if_cached(fd: int, position: int, length: int) -> bytearray | None:
    """A small range, in one call that never waits for the disk; None if it would have to."""
    global _nowait
    if not _nowait:
        return None
    data = bytearray(length)
    try:
        count = os.preadv(fd, [data], position, _nowait)
    except BlockingIOError:
        return None
    except OSError:
        # A file system without this: do not ask again.
        _nowait = 0
        return None
    return data if count == length else None


def warm(fd: int, position: int, length: int) -> bool:
    """Read a range so that it is cached; False if it was. Runs in a thread; the GIL is released
    meanwhile.

    Large reads ask the disk for as much at once, whatever the kernel would read ahead by itself.
    Cached pages are read as well. The reader that reaches the middle of what the kernel has read
    ahead makes the kernel ask the disk for more, and that should be this thread, not the loop.
    """
    was_cached = Question().is_cached(fd, position, length)
    try:
        with _Drain() as drain:
            drain.read(fd, position, position + length)
    except OSError as error:
        if error.errno not in _CANNOT_SPLICE:
            raise
        _copy(fd, position, position + length)
    return not was_cached


class _Drain:
    """A pipe into nothing. What is moved through it has been read, and is copied nowhere: that
    takes a fifth of the CPU that reading into memory takes."""

    __slots__ = ("_in", "_nothing", "_out")

    def __enter__(self) -> "_Drain":
        self._nothing = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        try:
            self._out, self._in = os.pipe()
        except OSError:
            os.close(self._nothing)
            raise
        with suppress(OSError):
            # Smaller if this user has many pipes. More system calls then do the same.
            fcntl.fcntl(self._in, fcntl.F_SETPIPE_SZ, _STEP_BYTES)
        return self

    def __exit__(self, *error: object) -> None:
        for descriptor in (self._in, self._out, self._nothing):
            os.close(descriptor)

    def read(self, fd: int, position: int, end: int) -> None:
        while position < end:
            wanted = min(_STEP_BYTES, end - position)
            count = os.splice(fd, self._in, wanted, offset_src=position)
            if count == 0:
                return
            position += count
            while count > 0:
                count -= os.splice(self._out, self._nothing, count)


def _copy(fd: int, position: int, end: int) -> None:
    while position < end:
        data = os.pread(fd, min(_STEP_BYTES, end - position), position)
        if not data:
            return
        position += len(data)
