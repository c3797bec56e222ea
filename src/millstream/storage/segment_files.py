"""From names in a partition directory to segments, and to names that may be removed."""

from collections.abc import Iterable, Mapping

from millstream.storage import aborted_index, layout, offset_index, time_index
from millstream.storage.aborted_index import AbortedIndex
from millstream.storage.files import DescriptorCache, FileInfo, LogFile
from millstream.storage.index_file import EntryFile
from millstream.storage.offset_index import OffsetIndex
from millstream.storage.segment import Segment
from millstream.storage.time_index import TimeIndex
from millstream.storage.values import LogConfig


def make_segment(
    cache: DescriptorCache,
    directory: str,
    base_offset: int,
    config: LogConfig,
    *,
    found: Mapping[str, FileInfo],
    now_ms: int,
) -> Segment:
    """A segment over the files in `found` (by name); other files are created when needed."""
    log_name = layout.offset_file_name(base_offset, layout.LOG_SUFFIX)
    info = found.get(log_name)

    def entries(suffix: str, entry_bytes: int) -> EntryFile:
        name = layout.offset_file_name(base_offset, suffix)
        index_info = found.get(name)
        size_bytes = 0 if index_info is None else index_info.size_bytes
        file = LogFile(cache, f"{directory}/{name}", size_bytes=size_bytes, needs_sync=False)
        return EntryFile(file, entry_bytes=entry_bytes, exists=index_info is not None)

    return Segment(
        base_offset,
        LogFile(
            cache,
            f"{directory}/{log_name}",
            size_bytes=0 if info is None else info.size_bytes,
            needs_sync=True,
        ),
        OffsetIndex(entries(layout.INDEX_SUFFIX, offset_index.ENTRY_BYTES), base_offset),
        TimeIndex(entries(layout.TIME_INDEX_SUFFIX, time_index.ENTRY_BYTES), base_offset),
        AbortedIndex(entries(layout.ABORTED_INDEX_SUFFIX, aborted_index.ENTRY_BYTES)),
        index_interval_bytes=config.index_interval_bytes,
        created_ms=now_ms,
        modified_ms=now_ms if info is None else info.modified_ms,
    )


def create_segment(
    cache: DescriptorCache, directory: str, base_offset: int, config: LogConfig, *, now_ms: int
) -> Segment:
    """A new, empty segment. Its indexes get a file with their first entries."""
    segment = make_segment(cache, directory, base_offset, config, found={}, now_ms=now_ms)
    segment.file.create()
    return segment


def mark_deleted(segment: Segment) -> list[LogFile]:
    """Rename the segment's files so that a restart does not see it; return them."""
    marked = []
    for file in segment.all_files:
        try:
            file.rename(file.path + layout.DELETED_SUFFIX)
        except FileNotFoundError:
            continue
        marked.append(file)
    return marked


class DeletedFiles:
    """Renamed files that a reader may still use, and when to delete them."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, LogFile]] = []

    def add(self, files: Iterable[LogFile], *, due_ms: int) -> None:
        self._waiting += [(due_ms, file) for file in files]

    def sweep(self, now_ms: int) -> None:
        waiting = []
        for due_ms, file in self._waiting:
            if due_ms <= now_ms:
                file.remove_when_unpinned()
            else:
                waiting.append((due_ms, file))
        self._waiting = waiting

    def close(self) -> None:
        """Close the descriptors of files that go with their directory, or at the next start."""
        for _, file in self._waiting:
            file.is_dirty = False
            file.close()
        self._waiting = []
