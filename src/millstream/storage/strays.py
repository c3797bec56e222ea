"""Directories that belong to no topic: set aside under another name, with the time.

The name says that they must not be loaded; a small file inside has the time, because nothing
else on a disk records it reliably. Nothing here decides that one is deleted.
"""

from collections.abc import Callable
from typing import Final

from millstream.lazy_dataclass import dataclass
from millstream.model import NO_TOPIC_ID, TopicId
from millstream.storage import layout
from millstream.storage.checkpoints import parse_partition_metadata
from millstream.storage.directories import PartitionDirectories
from millstream.storage.files import FileSystem, read_file, write_file

_SINCE_FILE: Final = "millstream-stray"


@dataclass(frozen=True, slots=True)
class Stray:
    path: str
    # NO_TOPIC_ID if the directory does not have it.
    topic_id: TopicId
    since_ms: int


def note_stray(file_system: FileSystem, path: str, *, now_ms: int) -> None:
    write_file(file_system, f"{path}/{_SINCE_FILE}", f"{now_ms}\n".encode(), is_synced=False)


def find_strays(file_system: FileSystem, directory: str, *, now_ms: int) -> list[Stray]:
    """All of a data directory. One without a time counts from now."""
    paths = [
        f"{directory}/{info.name}"
        for info in file_system.list(directory)
        if info.is_directory and layout.is_stray_directory(info.name)
    ]
    return [_look_at(file_system, path, now_ms) for path in paths]


def _look_at(file_system: FileSystem, path: str, now_ms: int) -> Stray:
    try:
        since_ms = int(read_file(file_system, f"{path}/{_SINCE_FILE}") or b"")
    except ValueError:
        note_stray(file_system, path, now_ms=now_ms)
        since_ms = now_ms
    try:
        metadata = read_file(file_system, f"{path}/{layout.PARTITION_METADATA_FILE}")
        topic_id = parse_partition_metadata(metadata or b"")
    except ValueError:
        topic_id = NO_TOPIC_ID
    return Stray(path, topic_id, since_ms)


class Strays:
    """Those of one data directory, from this start or an earlier one."""

    def __init__(
        self,
        file_system: FileSystem,
        directory: str,
        directories: PartitionDirectories,
        now_ms: Callable[[], int],
    ) -> None:
        self._file_system = file_system
        self._directory = directory
        self._directories = directories
        self._now_ms = now_ms

    def find(self) -> list[Stray]:
        return find_strays(self._file_system, self._directory, now_ms=self._now_ms())

    def delete(self, stray: Stray) -> None:
        """The store's next `sweep` removes it."""
        self._directories.remove_later(stray.path, due_ms=0)
