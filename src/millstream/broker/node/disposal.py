"""Removes files without waiting until their space is free.

The kernel frees the blocks and the cached pages of a file with its last name or its last
descriptor, whichever goes later: 40 to 60 ms of CPU for a gigabyte, and as long as the disk needs.
The event loop removes segments, so a large file is opened before its name goes, and a thread closes
it.
"""

import os
import stat
from collections.abc import Callable
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Final

from millstream.storage.files import OsFileSystem

# Below that, freeing takes less than a millisecond.
_LARGE_BYTES: Final = 8 << 20
# Descriptors that wait for the thread. When so many wait, the caller frees the next file itself.
_WAITING_MAX: Final = 256


class Disposal:
    def __init__(self, close: Callable[[int], None] = os.close) -> None:
        self._close = close
        self._waiting: SimpleQueue[int] = SimpleQueue()
        self._thread: Thread | None = None
        # Threads remove files, too.
        self._starting = Lock()

    def remove(self, path: str) -> None:
        """Afterwards the name is gone. Raises OSError."""
        descriptor = self._open_if_large(path)
        try:
            os.unlink(path)
        finally:
            if descriptor is not None:
                self._start()
                self._waiting.put(descriptor)

    def _open_if_large(self, path: str) -> int | None:
        info = os.lstat(path)
        if not stat.S_ISREG(info.st_mode) or info.st_size < _LARGE_BYTES:
            return None
        if self._waiting.qsize() >= _WAITING_MAX:
            return None
        try:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            # No descriptor is left, for example. The file is still to be removed.
            return None

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                # A process that ends closes its descriptors anyway.
                self._thread = Thread(target=self._run, name="disposal", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            self._close(self._waiting.get())


class NodeFileSystem(OsFileSystem):
    """As a node uses it, which has clients to answer while it removes segments."""

    def __init__(self) -> None:
        self._disposal = Disposal()

    def remove(self, path: str) -> None:
        self._disposal.remove(path)
