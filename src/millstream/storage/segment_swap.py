"""Puts compacted segments in the place of old ones, so that a crash leaves either version.

    NNN.log.cleaned     written and synced: a start removes it
    NNN.log.swap        from here on it counts: a start puts it in place
    NNN.log             in place, the old ones are NNN.log.deleted

`begin_swap`, a sync of the directory, `finish_swap`, a sync of the directory: the renames
are quick and belong to the owner of the log, the syncs may wait for the disk. The log file is
renamed last, so that a `.log.swap` never lacks the files that belong to it.

A compacted segment ends with the last batch of those it replaces, if necessary without its
records. So a start can tell from the file alone which old segments it replaces, and there
is no gap between segments.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from millstream.records.batch import HEADER_BYTES, MAGIC, BatchView
from millstream.storage import layout
from millstream.storage.compaction_round import CleanedSegment
from millstream.storage.files import DescriptorCache, FileInfo, FileSystem
from millstream.storage.log import Log
from millstream.storage.segment import Segment
from millstream.storage.segment_files import make_segment
from millstream.storage.values import CorruptLog

# The log comes last: its name decides.
_SUFFIXES: Final = (
    layout.INDEX_SUFFIX,
    layout.TIME_INDEX_SUFFIX,
    layout.ABORTED_INDEX_SUFFIX,
    layout.LOG_SUFFIX,
)
_WINDOW_BYTES: Final = 1 << 16


def replaced_segments(log: Log, cleaned: CleanedSegment) -> list[Segment] | None:
    """The segments that `cleaned` was made from; None if the log has changed since."""
    bases = [segment.base_offset for segment in log.segments[:-1]]
    first = cleaned.replaced_offsets[0]
    if first not in bases:
        return None
    at = bases.index(first)
    count = len(cleaned.replaced_offsets)
    old = log.segments[at : at + count]
    if tuple(bases[at : at + count]) != cleaned.replaced_offsets:
        return None
    size_bytes = sum(segment.size_bytes for segment in old)
    return old if size_bytes == cleaned.bytes_before else None


def begin_swap(log: Log, cleaned: CleanedSegment) -> None:
    """Make the new segment count. It needs a sync of the directory before `finish_swap`.

    Where an epoch began may be in none of its batches afterwards: the file of epochs must know it.
    """
    log.epochs.save_if_changed()
    _rename(
        log.cache.file_system, log.directory, cleaned, layout.CLEANED_SUFFIX, layout.SWAP_SUFFIX
    )


def finish_swap(log: Log, cleaned: CleanedSegment, old: list[Segment], *, now_ms: int) -> Segment:
    """Rename the old segments, and give their names to the new one.

    A reader of an old file can continue: the file keeps its bytes until it is unpinned.
    """
    new = _new_segment(log, cleaned, now_ms)
    new.modified_ms = old[-1].modified_ms
    log.segments.replace(old, new, log.config, now_ms)
    _rename(log.cache.file_system, log.directory, cleaned, layout.SWAP_SUFFIX, "")
    return new


def discard(file_system: FileSystem, directory: str) -> None:
    """Remove what a failed round left; the names that count go first."""
    names = [info.name for info in file_system.list(directory)]
    for suffix in reversed(_SUFFIXES):
        for end in (layout.SWAP_SUFFIX, layout.CLEANED_SUFFIX):
            for name in names:
                if name.endswith(suffix + end) and layout.parse_segment_file(name) is not None:
                    file_system.remove(f"{directory}/{name}")


def _rename(
    file_system: FileSystem, directory: str, cleaned: CleanedSegment, old_end: str, new_end: str
) -> None:
    for suffix in _SUFFIXES:
        if suffix == layout.ABORTED_INDEX_SUFFIX and cleaned.aborted_index_bytes < 0:
            continue
        path = f"{directory}/{layout.offset_file_name(cleaned.base_offset, suffix)}"
        file_system.rename(path + old_end, path + new_end)


def _new_segment(log: Log, cleaned: CleanedSegment, now_ms: int) -> Segment:
    sizes = {
        layout.LOG_SUFFIX: cleaned.bytes_after,
        layout.INDEX_SUFFIX: cleaned.index_bytes,
        layout.TIME_INDEX_SUFFIX: cleaned.time_index_bytes,
        layout.ABORTED_INDEX_SUFFIX: cleaned.aborted_index_bytes,
    }
    found = {}
    for suffix, size_bytes in sizes.items():
        if size_bytes >= 0:
            name = layout.offset_file_name(cleaned.base_offset, suffix)
            found[name] = FileInfo(name, size_bytes, now_ms, is_directory=False)
    return make_segment(
        log.cache, log.directory, cleaned.base_offset, log.config, found=found, now_ms=now_ms
    )


# After a crash


def finish_swaps(directory: str, found: Iterable[FileInfo], cache: DescriptorCache) -> bool:
    """Complete what a crash interrupted; return whether names have changed.

    If it raises CorruptLog, it has changed nothing.
    """
    files = {info.name: info for info in found}
    names = [name for name in files if layout.parse_segment_file(name) is not None]
    cleaned = [name for name in names if name.endswith(layout.CLEANED_SUFFIX)]
    swapped = [name for name in names if name.endswith(layout.SWAP_SUFFIX)]
    if not cleaned and not swapped:
        return False
    file_system = cache.file_system
    # Kafka renames the log first, so an incomplete set of its files does not count.
    incomplete = min((int(name.partition(".")[0]) for name in cleaned), default=None)
    valid: dict[int, int] = {}
    for name in swapped:
        base_offset = int(name.partition(".")[0])
        if name.endswith(layout.LOG_SUFFIX + layout.SWAP_SUFFIX) and (
            incomplete is None or base_offset < incomplete
        ):
            path = f"{directory}/{name}"
            valid[base_offset] = _end_offset(file_system, path, files[name].size_bytes, base_offset)
    for name in names:
        if _is_replaced(name, valid):
            path = f"{directory}/{name}"
            file_system.rename(path, path + layout.DELETED_SUFFIX)
    _name_swapped(file_system, directory, swapped, valid)
    for name in cleaned:
        file_system.remove(f"{directory}/{name}")
    return True


def _is_replaced(name: str, valid: dict[int, int]) -> bool:
    """Whether this file belongs to a segment that a swapped one replaces."""
    parsed = layout.parse_segment_file(name)
    if parsed is None or parsed.suffix not in _SUFFIXES:
        return False
    return any(base <= parsed.base_offset < end for base, end in valid.items())


def _name_swapped(
    file_system: FileSystem, directory: str, swapped: list[str], valid: dict[int, int]
) -> None:
    for suffix in _SUFFIXES:
        for name in swapped:
            if not name.endswith(suffix + layout.SWAP_SUFFIX):
                continue
            path = f"{directory}/{name}"
            if int(name.partition(".")[0]) in valid:
                file_system.rename(path, path.removesuffix(layout.SWAP_SUFFIX))
            else:
                file_system.remove(path)


def _end_offset(file_system: FileSystem, path: str, size_bytes: int, base_offset: int) -> int:
    """Where the segments end that a swapped one replaces; at least the one of its name."""
    end_offset = base_offset + 1
    for batch in _headers(file_system, path, size_bytes):
        end_offset = max(end_offset, batch.next_offset)
    return end_offset


def _headers(file_system: FileSystem, path: str, size_bytes: int) -> Iterator[BatchView]:
    descriptor = file_system.open(path, create=False)
    try:
        position, start, window = 0, 0, memoryview(b"")
        while position < size_bytes:
            if position - start + HEADER_BYTES > len(window):
                window = memoryview(file_system.read_at(descriptor, _WINDOW_BYTES, position))
                start = position
            if len(window) - (position - start) < HEADER_BYTES:
                raise CorruptLog(f"{path} ends inside a batch at position {position}")
            batch = BatchView(window[position - start :])
            is_whole = HEADER_BYTES <= batch.size_bytes <= size_bytes - position
            if batch.magic != MAGIC or not is_whole:
                raise CorruptLog(f"{path} has no intact batch at position {position}")
            yield batch
            position += batch.size_bytes
    finally:
        file_system.close(descriptor)
