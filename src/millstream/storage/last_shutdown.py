"""How a data directory was last shut down, and the marks that the next start reads.

A clean stop writes a marker as its last step; a start removes it as its first. The stored
boot id says whether this boot wrote what is read, or there was a power cut in between.
"""

import json

from millstream.errors import StartError
from millstream.storage import layout
from millstream.storage.files import FileSystem, read_file, write_file


class LastShutdown:
    def __init__(self, file_system: FileSystem, directory: str) -> None:
        self._file_system = file_system
        self._directory = directory
        # Known after `begin_use`. After a power cut only what was synced is there.
        self.was_clean = True
        self.power_was_cut = False

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"

    def may_have_lost_data(self) -> bool:
        """Did a power cut, anything that looks like one, or a disk failure end the last use?

        Call this before `begin_use`. Raises StartError."""
        try:
            names = {info.name for info in self._file_system.list(self._directory)}
            if layout.SUSPECT_FILE in names:
                return True
            if layout.CLEAN_STOP_FILE in names:
                return False
            identity = self._file_system.identity(self._directory)
            stored = read_file(self._file_system, self._path(layout.BOOT_FILE))
        except OSError as error:
            raise StartError(f"cannot use data directory {self._directory}: {error}") from error
        return identity is None or stored != identity.encode()

    def begin_use(self, names: set[str]) -> None:
        """Find out how the last use of the directory, with these names in it, ended, and remove
        its marker before anything else. Raises OSError."""
        identity = self._file_system.identity(self._directory)
        stored = read_file(self._file_system, self._path(layout.BOOT_FILE))
        is_same_boot = identity is not None and stored == identity.encode()
        self.was_clean = layout.CLEAN_STOP_FILE in names
        self.power_was_cut = not self.was_clean and not is_same_boot
        if self.was_clean:
            self._file_system.remove(self._path(layout.CLEAN_STOP_FILE))
            # Otherwise a power cut could bring it back, and the next start would trust the files.
            self._file_system.sync_directory(self._directory)

    def name_boot(self) -> None:
        """Record this boot: from now on, this boot has written what is read.

        A crash before that leaves the old boot id, so that the next start still detects the
        power cut.
        """
        identity = self._file_system.identity(self._directory)
        path = self._path(layout.BOOT_FILE)
        data = (identity or "unknown").encode()
        if read_file(self._file_system, path) != data:
            write_file(self._file_system, path, data, is_synced=True)

    def mark_clean(self) -> None:
        """The last step: while the marker exists, everything else is on the disk."""
        marker = json.dumps({"version": 0, "brokerEpoch": -1}).encode()
        write_file(self._file_system, self._path(layout.CLEAN_STOP_FILE), marker, is_synced=True)

    def note_failed_disk(self) -> None:
        """Writes may be lost, whatever later reads say; the next start has to know."""
        path = self._path(layout.SUSPECT_FILE)
        try:
            write_file(self._file_system, path, b"disk failed\n", is_synced=True)
        except OSError:
            # The disk accepts no writes any more: then it also fails at the start.
            return

    def forget_failed_disk(self) -> None:
        """The cluster no longer relies on the data here. Raises StartError."""
        try:
            self._file_system.remove(self._path(layout.SUSPECT_FILE))
            self._file_system.sync_directory(self._directory)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StartError(f"cannot use data directory {self._directory}: {error}") from error
