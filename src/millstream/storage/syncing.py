"""Brings bytes to the disk: what a log has to sync, and a sync of many logs at once.

`sync` is the only function of this package that runs in a thread. It touches only the
descriptors and paths in the tickets, and the logs get the result afterwards, on the loop.
"""

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Final

from millstream.lazy_dataclass import dataclass
from millstream.storage import layout
from millstream.storage.files import FileSystem, LogFile, write_file
from millstream.storage.values import storage_failure

# Beyond a few files one sync of the whole file system is faster: 64 files took 34 ms one by
# one and 2.7 ms together.
FILES_ONE_BY_ONE_MAX: Final = 4


UnsyncedState = tuple[int, tuple[tuple[LogFile, int], ...], tuple[str, ...], tuple[str, ...]]


@dataclass(slots=True)
class PinnedFile:
    file: LogFile
    descriptor: int
    # The file's write count when the ticket was created.
    changes: int


@dataclass(slots=True)
class SyncTicket:
    """What was dirty in one log at one moment. Must be returned to `end_sync`."""

    file_system: FileSystem
    device: int
    next_offset: int
    truncations: int
    files: list[PinnedFile] = field(default_factory=list)
    # Small files that were replaced, and directories with new names in them.
    paths: list[str] = field(default_factory=list)
    directories: list[str] = field(default_factory=list)
    # The log was closed, and its directory possibly renamed: nothing waits for this any more.
    is_abandoned: bool = False


class Unsynced:
    """What one log has written and not synced yet. Callers that promise durability must call
    `begin_sync`, `sync` and `end_sync`."""

    __slots__ = (
        "_device",
        "_file_system",
        "_next_offset",
        "_tickets",
        "directories",
        "files",
        "paths",
        "synced_offset",
        "truncations",
    )

    def __init__(
        self, file_system: FileSystem, device: int, next_offset: Callable[[], int]
    ) -> None:
        self._file_system = file_system
        self._device = device
        self._next_offset = next_offset
        # Records below it are certainly on the disk. Never beyond the end of the log.
        self.synced_offset = next_offset()
        # Tickets that were not returned yet.
        self._tickets: list[SyncTicket] = []
        self.files: dict[LogFile, None] = {}
        self.paths: dict[str, None] = {}
        self.directories: dict[str, None] = {}
        # A sync that ran while the log was cut says nothing about later writes.
        self.truncations = 0

    def __bool__(self) -> bool:
        return bool(self.files or self.paths or self.directories)

    def note_created(self, directory: str, parent: str, file: LogFile) -> None:
        """The partition's directory is new: so are its name and its files."""
        self.files[file] = None
        self.paths[f"{directory}/{layout.PARTITION_METADATA_FILE}"] = None
        self.directories[directory] = None
        self.directories[parent] = None

    def write_small(self, directory: str, name: str, data: bytes) -> None:
        """Replace a small file of the partition; the next sync includes it."""
        path = f"{directory}/{name}"
        try:
            write_file(self._file_system, path, data, is_synced=False)
        except OSError as error:
            raise storage_failure(error, directory) from error
        self.paths[path] = None
        self.directories[directory] = None

    def state(self) -> UnsyncedState | None:
        """What a sync of the whole file system, started now, would bring to the disk; None if
        nothing. Equal to an earlier one if nothing was written since."""
        if not self:
            return None
        changes = tuple((file, file.changes) for file in self.files)
        return self.truncations, changes, tuple(self.paths), tuple(self.directories)

    def begin_sync(self) -> SyncTicket | None:
        """What is not on the disk yet, pinned; None if nothing."""
        next_offset = self._next_offset()
        if not self:
            self.synced_offset = next_offset
            return None
        ticket = SyncTicket(self._file_system, self._device, next_offset, self.truncations)
        for file in self.files:
            ticket.files.append(PinnedFile(file, file.pin(), file.changes))
        ticket.paths.extend(self.paths)
        ticket.directories.extend(self.directories)
        self.paths.clear()
        self.directories.clear()
        self._tickets.append(ticket)
        return ticket

    def end_sync(self, ticket: SyncTicket) -> None:
        """The ticket's bytes are on the disk; later writes stay unsynced."""
        self._tickets = [other for other in self._tickets if other is not ticket]
        for pinned in ticket.files:
            file = pinned.file
            file.unpin()
            if file.changes == pinned.changes:
                file.is_dirty = False
                self.files.pop(file, None)
        if ticket.truncations == self.truncations:
            self.synced_offset = max(self.synced_offset, ticket.next_offset)

    def cut(self, next_offset: int) -> None:
        """The log now ends at `next_offset`, earlier than before."""
        self.synced_offset = min(self.synced_offset, next_offset)

    def forget(self) -> None:
        """Everything was synced with the whole file system."""
        self._clear()
        self.synced_offset = self._next_offset()

    def _clear(self) -> None:
        for file in self.files:
            file.is_dirty = False
        self.files.clear()
        self.paths.clear()
        self.directories.clear()

    def abandon(self) -> None:
        """The log closes. A sync of it in a thread may find its names gone."""
        for ticket in self._tickets:
            ticket.is_abandoned = True
        self._tickets.clear()
        self._clear()


def sync(tickets: Sequence[SyncTicket]) -> None:
    """Everything in the tickets is on the disk when this returns. Raises OSError."""
    by_device: dict[int, list[SyncTicket]] = {}
    for ticket in tickets:
        by_device.setdefault(ticket.device, []).append(ticket)
    for group in by_device.values():
        # Many tickets may be of one log, and hold the same file.
        files = {pinned.file: pinned for ticket in group for pinned in ticket.files}
        names = sum(len(ticket.paths) + len(ticket.directories) for ticket in group)
        file_system = group[0].file_system
        if files and len(files) + names > FILES_ONE_BY_ONE_MAX:
            pinned = next(iter(files.values()))
            if file_system.sync_everything(pinned.descriptor):
                continue
        for pinned in files.values():
            file_system.sync(pinned.descriptor)
        for ticket in group:
            _sync_small(ticket)


def _sync_small(ticket: SyncTicket) -> None:
    file_system = ticket.file_system
    for path in ticket.paths:
        _sync_path(file_system, path)
    # Names last: a name must not reach the disk before what it names.
    for directory in ticket.directories:
        _sync_names(file_system, directory, ticket)


def _sync_names(file_system: FileSystem, directory: str, ticket: SyncTicket) -> None:
    try:
        file_system.sync_directory(directory)
    except FileNotFoundError:
        # Correct if the partition was deleted in the meantime. If not, something else removed a
        # directory with records that are about to be acknowledged.
        if not ticket.is_abandoned:
            raise


def _sync_path(file_system: FileSystem, path: str) -> None:
    try:
        descriptor = file_system.open(path, create=False)
    except FileNotFoundError:
        # The partition was deleted in the meantime.
        return
    try:
        file_system.sync(descriptor)
    finally:
        file_system.close(descriptor)
