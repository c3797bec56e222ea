"""After a crash: brings what recovery has read to the disk, in the background.

Recovery reads through the page cache, so what it finds may not be on the disk yet. No
producer has to wait for that: each log knows what it has not synced. But until it is done,
and the checkpoints say so, the next start has to check the same bytes again.

`sync` runs in a thread. It syncs the whole file system, so no file has to be open: ten
thousand partitions have more files than a process may have descriptors.
"""

from collections.abc import Iterable
from typing import Final

from millstream.storage.files import FileSystem
from millstream.storage.log import Log
from millstream.storage.syncing import sync

# A sync with much to write occupies the journal, and appends to other files wait for it,
# tens of milliseconds. Files of this size are written before, a piece at a time.
_LARGE_BYTES: Final = 8 << 20
_PIECE_BYTES: Final = 4 << 20


class Confirmation:
    def __init__(self, file_system: FileSystem, descriptor: int, logs: Iterable[Log]) -> None:
        """`descriptor` is of any file on the file system of all the logs."""
        self._file_system = file_system
        self._descriptor = descriptor
        found = ((log, log.unsynced.state()) for log in logs)
        self._unsynced = [(log, state) for log, state in found if state is not None]
        files = (file for _, (_, changes, _, _) in self._unsynced for file, _ in changes)
        self._large = [(f.path, f.size_bytes) for f in files if f.size_bytes >= _LARGE_BYTES]

    def sync(self) -> bool:
        """Whether everything is on the disk; False if this system cannot do it. Raises OSError."""
        for path, size_bytes in self._large:
            self._write_back(path, size_bytes)
        return self._file_system.sync_everything(self._descriptor)

    def _write_back(self, path: str, size_bytes: int) -> None:
        try:
            descriptor = self._file_system.open(path, create=False)
        except FileNotFoundError:
            # The partition was deleted in the meantime.
            return
        try:
            for position in range(0, size_bytes, _PIECE_BYTES):
                self._file_system.write_back(descriptor, position, _PIECE_BYTES)
        finally:
            self._file_system.close(descriptor)

    def end(self, *, is_synced: bool) -> None:
        """Report the result of `sync` to the logs. A log without later writes has nothing left
        to sync. Raises OSError."""
        if not is_synced:
            sync_all(self._file_system, self._descriptor, [log for log, _ in self._unsynced])
            return
        for log, state in self._unsynced:
            if log.unsynced.state() == state:
                log.unsynced.forget()


def sync_all(file_system: FileSystem, descriptor: int, logs: Iterable[Log]) -> None:
    """Bring everything of these logs to the disk, now. Raises OSError."""
    if file_system.sync_everything(descriptor):
        for log in logs:
            log.unsynced.forget()
        return
    for log in logs:
        ticket = log.begin_sync()
        if ticket is not None:
            sync([ticket])
            log.unsynced.end_sync(ticket)
