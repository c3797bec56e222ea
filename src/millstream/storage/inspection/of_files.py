"""How the log answers, from its files alone: which segment, index entries and bytes.

Reads any data directory, including Kafka's, without touching it, as `inspect` does; the steps are
those of a node. Files of a running node may grow meanwhile.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from millstream.records.batch import HEADER_BYTES, MAGIC, BatchView
from millstream.storage import layout, offset_index, page_cache, time_index
from millstream.storage.inspect import SegmentInfo
from millstream.storage.inspection.cached_pages import CachedPages, cached_pages
from millstream.storage.retention import age_timestamp_ms

_NO_TIMESTAMP_MS = -1


@dataclass(frozen=True, slots=True)
class OffsetEntry:
    offset: int
    position: int


@dataclass(frozen=True, slots=True)
class TimeEntry:
    timestamp_ms: int
    offset: int


def read_offset_index(info: SegmentInfo) -> list[OffsetEntry]:
    """The entries of the `.index`, without the zeros that Kafka allocates ahead."""
    found: list[OffsetEntry] = []
    path = info.path.with_suffix(layout.INDEX_SUFFIX)
    for relative, position in _unpacked(path, offset_index.ENTRY.size, offset_index.ENTRY.unpack):
        if found and position <= found[-1].position:
            break
        found.append(OffsetEntry(info.base_offset + relative, position))
    return [] if found == [OffsetEntry(info.base_offset, 0)] and info.size_bytes == 0 else found


def read_time_index(info: SegmentInfo) -> list[TimeEntry]:
    """The entries of the `.timeindex`, without the zeros that Kafka allocates ahead."""
    found: list[TimeEntry] = []
    path = info.path.with_suffix(layout.TIME_INDEX_SUFFIX)
    for timestamp_ms, relative in _unpacked(path, time_index.ENTRY.size, time_index.ENTRY.unpack):
        if (timestamp_ms, relative) == (0, 0) or (found and timestamp_ms < found[-1].timestamp_ms):
            break
        found.append(TimeEntry(timestamp_ms, info.base_offset + relative))
    return found


def _unpacked(path: Path, size: int, unpack: object) -> Iterator[tuple[int, int]]:
    data = path.read_bytes() if path.exists() else b""
    for position in range(0, len(data) - size + 1, size):
        yield unpack(data[position : position + size])  # type: ignore[operator]


@dataclass(frozen=True, slots=True)
class Probe:
    """One step of a binary search in an index."""

    number: int
    # What the entry has: an offset, or a timestamp.
    key: int
    # The entry is at or below what is searched, so the search goes on to its right.
    is_below: bool


@dataclass(frozen=True, slots=True)
class Explanation:
    """How a fetch finds an offset."""

    offset: int
    segments: int
    segment: SegmentInfo
    probes: tuple[Probe, ...]
    # Where the scan starts: the entry that was found, or the start of the segment.
    entry: OffsetEntry | None
    # Headers of batches that were read, the last of which is the answer.
    batches_scanned: int
    # From the start of the scan to the batch that was found.
    bytes_scanned: int
    # None: no batch at or after the offset, so the fetch waits.
    batch_position: int | None
    batch_base_offset: int | None
    batch_last_offset: int | None
    batch_bytes: int | None
    is_batch_cached: bool | None


def explain_offset(segments: Sequence[SegmentInfo], offset: int) -> Explanation:
    """The steps of a fetch at `offset` in the segments of one partition."""
    number = _floor([info.base_offset for info in segments], offset)
    info = segments[number]
    entries = read_offset_index(info)
    probes, found = _search([entry.offset for entry in entries], offset)
    entry = entries[found] if found >= 0 else None
    start = 0 if entry is None else entry.position
    scanned, batch = _scan(info, start, offset)
    position = None if batch is None else batch[0]
    return Explanation(
        offset=offset,
        segments=len(segments),
        segment=info,
        probes=probes,
        entry=entry,
        batches_scanned=scanned,
        bytes_scanned=(info.size_bytes if position is None else position) - start,
        batch_position=position,
        batch_base_offset=None if batch is None else batch[1].base_offset,
        batch_last_offset=None if batch is None else batch[1].last_offset,
        batch_bytes=None if batch is None else batch[1].size_bytes,
        is_batch_cached=None
        if batch is None
        else _is_cached(info.path, batch[0], batch[1].size_bytes),
    )


def _scan(info: SegmentInfo, start: int, offset: int) -> tuple[int, tuple[int, BatchView] | None]:
    """How many headers were read, and the batch that holds `offset` or follows it."""
    scanned = 0
    for position, header in _headers(info, start):
        scanned += 1
        if header.last_offset >= offset:
            return scanned, (position, header)
    return scanned, None


@dataclass(frozen=True, slots=True)
class TimeExplanation:
    """How a lookup by time finds the offset where reading starts."""

    timestamp_ms: int
    # Older segments, ruled out by their largest timestamps.
    segments_skipped: int
    segment: SegmentInfo | None
    probes: tuple[Probe, ...]
    entry: TimeEntry | None
    # The first offset of the batch with the first record at or after the time.
    offset: int | None


def explain_time(segments: Sequence[SegmentInfo], timestamp_ms: int) -> TimeExplanation:
    """The steps of ListOffsets with a time."""
    for skipped, info in enumerate(segments):
        entries = read_time_index(info)
        is_last = info is segments[-1]
        newest = entries[-1].timestamp_ms if entries else _NO_TIMESTAMP_MS
        if newest < timestamp_ms and not is_last:
            continue
        # Strictly older: several batches may share one timestamp.
        probes, found = _search([entry.timestamp_ms for entry in entries], timestamp_ms - 1)
        entry = entries[found] if found >= 0 else None
        from_offset = info.base_offset if entry is None else entry.offset
        start = explain_offset([info], from_offset).batch_position or 0
        offset = None
        for _, header in _headers(info, start):
            if header.max_timestamp_ms >= timestamp_ms:
                offset = header.base_offset
                break
        if offset is not None or is_last:
            return TimeExplanation(timestamp_ms, skipped, info, probes, entry, offset)
    return TimeExplanation(timestamp_ms, len(segments), None, (), None, None)


def _floor(keys: Sequence[int], wanted: int) -> int:
    """The last of the sorted keys at or below `wanted`, or the first."""
    below = [number for number, key in enumerate(keys) if key <= wanted]
    return below[-1] if below else 0


def _search(keys: Sequence[int], wanted: int) -> tuple[tuple[Probe, ...], int]:
    """The last key at or below `wanted`, -1 for none, and the steps to it."""
    low, high = 0, len(keys)
    probes = []
    while low < high:
        middle = (low + high) // 2
        is_below = keys[middle] <= wanted
        probes.append(Probe(middle, keys[middle], is_below))
        if is_below:
            low = middle + 1
        else:
            high = middle
    return tuple(probes), low - 1


def _headers(info: SegmentInfo, position: int) -> Iterator[tuple[int, BatchView]]:
    """The headers of batches from a position on, until the bytes no longer look like one."""
    with info.path.open("rb") as file:
        size_bytes = os.fstat(file.fileno()).st_size
        while position + HEADER_BYTES <= size_bytes:
            file.seek(position)
            header = BatchView(memoryview(file.read(HEADER_BYTES)))
            if header.magic != MAGIC or not header.size_bytes >= HEADER_BYTES:
                return
            yield position, header
            position += header.size_bytes


def _is_cached(path: Path, position: int, length: int) -> bool:
    with path.open("rb") as file:
        return page_cache.is_cached(file.fileno(), position, length)


def cached_pages_of(path: Path) -> CachedPages | None:
    """None where the system cannot say."""
    with path.open("rb") as file:
        return cached_pages(file.fileno(), 0, os.fstat(file.fileno()).st_size)


@dataclass(frozen=True, slots=True)
class Removal:
    """When retention removes a segment, as far as that is known now."""

    segment: SegmentInfo
    # When the newest of its records is older than retention.ms. None: never by time.
    by_time_ms: int | None
    # Bytes that must still be appended until retention.bytes removes it: 0 for now, None for never.
    by_size_after_bytes: int | None
    # The node starts a new segment before it removes this one.
    is_active: bool


def forecast(
    segments: Sequence[SegmentInfo], *, retention_ms: int, retention_bytes: int, now_ms: int
) -> list[Removal]:
    """What retention removes next from one partition, the oldest first; -1 is no limit.

    A segment goes as a whole, and never before those that are older.
    """
    removals: list[Removal] = []
    total = sum(info.size_bytes for info in segments)
    older_bytes = 0
    for number, info in enumerate(segments):
        by_time = by_size = None
        if retention_ms >= 0:
            entries = read_time_index(info)
            newest = entries[-1].timestamp_ms if entries else _NO_TIMESTAMP_MS
            started_ms = age_timestamp_ms(
                max_timestamp_ms=newest, modified_ms=info.modified_ms, now_ms=now_ms
            )
            by_time = started_ms + retention_ms
            if removals and removals[-1].by_time_ms is not None:
                by_time = max(by_time, removals[-1].by_time_ms)
        if retention_bytes >= 0:
            older_bytes += info.size_bytes
            by_size = max(retention_bytes + older_bytes - total, 0)
        removals.append(Removal(info, by_time, by_size, number == len(segments) - 1))
    return removals
