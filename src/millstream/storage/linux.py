"""System calls that Python does not offer, through ctypes, with fallbacks on other systems.

ctypes releases the interpreter's lock around a call, so these may run in a thread beside
the event loop.
"""

import ctypes
import errno
import fcntl
import os
import sys
from functools import cache
from typing import Final

_AT_FDCWD: Final = -100
_STATX_MNT_ID_UNIQUE: Final = 0x4000
_STATX_BUFFER_BYTES: Final = 256
_STATX_MASK_END: Final = 4
_STATX_MOUNT_ID_START: Final = 0x90
# SYNC_FILE_RANGE_WAIT_BEFORE, _WRITE and _WAIT_AFTER.
_WRITE_AND_WAIT: Final = 7
# What a kernel, a file system or a sandbox says that does not have a call.
_NOT_OFFERED: Final = frozenset({errno.ENOSYS, errno.EINVAL, errno.EPERM, errno.ESPIPE})
_BOOT_ID_PATH: Final = "/proc/sys/kernel/random/boot_id"


@cache
def _libc() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    return ctypes.CDLL(None, use_errno=True)


def sync_data(descriptor: int) -> None:
    if sys.platform == "darwin":
        # There, fsync leaves the bytes in the drive's cache.
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(descriptor)


def sync_file_system(descriptor: int) -> bool:
    """Write out everything on the file system that holds this descriptor."""
    libc = _libc()
    if libc is None or not hasattr(libc, "syncfs"):
        return False
    if libc.syncfs(descriptor) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return True


def write_back(descriptor: int, position: int, size_bytes: int) -> None:
    """Have a piece of a file written, and wait for that; it still has to be synced.

    Raises OSError: the kernel reports that it could not write only once for each descriptor, so
    a sync that follows would not.
    """
    libc = _libc()
    if libc is None or not hasattr(libc, "sync_file_range"):
        return
    piece = ctypes.c_int64(position), ctypes.c_int64(size_bytes)
    if libc.sync_file_range(descriptor, *piece, _WRITE_AND_WAIT) != 0:
        code = ctypes.get_errno()
        if code not in _NOT_OFFERED:
            raise OSError(code, os.strerror(code))


def boot_and_mount(path: str) -> str | None:
    """Identifies the boot of the machine and the mount of the file system.

    The older mount ids and device numbers can be the same after an unmount and a mount; the
    unique mount id (Linux 6.8) cannot. None if the kernel does not have it.
    """
    mount = _unique_mount_id(path)
    if mount is None:
        return None
    try:
        with open(_BOOT_ID_PATH, encoding="ascii") as file:
            boot = file.read().strip()
    except OSError:
        return None
    return f"{boot} {mount}"


def _unique_mount_id(path: str) -> int | None:
    libc = _libc()
    if libc is None or not hasattr(libc, "statx"):
        return None
    buffer = ctypes.create_string_buffer(_STATX_BUFFER_BYTES)
    if libc.statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_MNT_ID_UNIQUE, buffer) != 0:
        return None
    answered = int.from_bytes(buffer.raw[:_STATX_MASK_END], sys.byteorder)
    if not answered & _STATX_MNT_ID_UNIQUE:
        return None
    start = _STATX_MOUNT_ID_START
    return int.from_bytes(buffer.raw[start : start + 8], sys.byteorder)


def lock_file(path: str) -> int | None:
    """Lock `path` for this process, in both possible ways; None if another process has it.

    Java locks with lockf, shell scripts with flock, and neither sees the other.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
