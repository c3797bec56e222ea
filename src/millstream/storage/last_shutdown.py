"""How a data directory was shut down last: may data be lost?"""

from millstream.errors import StartError
from millstream.storage import layout
from millstream.storage.files import FileSystem, read_file, write_file


class LastShutdown:
    """To be asked before the logs are loaded: from then on the directory is in use again."""

    def __init__(self, file_system: FileSystem, directory: str) -> None:
        self._file_system = file_system
        self._directory = directory

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"

    def may_have_lost_data(self) -> bool:
        """Was it ended by a power cut, by anything that looks like one, or by the disk?

        Raises StartError."""
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

    def note_failed_disk(self) -> None:
        """What was written may be gone, whatever later reads say; the next start has to know."""
        path = self._path(layout.SUSPECT_FILE)
        try:
            write_file(self._file_system, path, b"disk failed\n", is_synced=True)
        except OSError:
            # The disk takes nothing any more: then neither does it give anything at the start.
            return

    def forget_failed_disk(self) -> None:
        """The cluster counts on nothing that was here. Raises StartError."""
        try:
            self._file_system.remove(self._path(layout.SUSPECT_FILE))
            self._file_system.sync_directory(self._directory)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StartError(f"cannot use data directory {self._directory}: {error}") from error
