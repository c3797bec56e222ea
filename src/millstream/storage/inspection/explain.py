"""How a fetch finds its bytes, step by step, with the lookups that fetches use themselves."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, log2

from millstream.storage.inspection.cached_pages import cached_pages
from millstream.storage.segment import Segment


@dataclass(slots=True)
class Explanation:
    """`position` and the rest are None if no batch has the offset, or a later one."""

    offset: int
    steps: list[str] = field(default_factory=list)
    segment_base_offset: int = -1
    # Where the sparse index sends the scan, and how far that had to go.
    index_position: int = 0
    scanned_bytes: int = 0
    scanned_batches: int = 0
    position: int | None = None
    batch_bytes: int | None = None
    batch_base_offset: int | None = None
    is_cached: bool | None = None


def explain_offset(segments: Sequence[Segment], number: int, offset: int) -> Explanation:
    """`number` is the segment that the log chose for `offset`."""
    found = Explanation(offset)
    probes = ceil(log2(len(segments))) if len(segments) > 1 else 0
    segment = segments[number]
    found.segment_base_offset = segment.base_offset
    found.steps.append(
        f"Segment {number + 1} of {len(segments)} begins at offset {segment.base_offset}: "
        + (f"found with {probes} comparisons in memory." if probes else "there is no other.")
    )
    _explain_index(found, segment, offset)
    _explain_scan(found, segment, offset)
    if found.position is not None and found.batch_bytes is not None:
        _explain_cache(found, segment, found.position, found.batch_bytes)
    return found


def _explain_index(found: Explanation, segment: Segment, offset: int) -> None:
    entry = segment.index.lookup(offset)
    count = segment.index.count
    if entry is None:
        why = "has no entry" if not count else f"has {count} entries, all of them later"
        found.steps.append(f"The sparse index {why}: the scan starts at the segment's beginning.")
        return
    found.index_position = entry[1]
    probes = ceil(log2(count + 1))
    found.steps.append(
        f"The sparse index has {count} entries. {probes} comparisons find offset {entry[0]} at "
        f"byte {entry[1]:,}."
    )


def _explain_scan(found: Explanation, segment: Segment, offset: int) -> None:
    for position, batch in segment.headers(found.index_position):
        if batch.last_offset >= offset:
            found.position, found.batch_bytes = position, batch.size_bytes
            found.batch_base_offset = batch.base_offset
            found.steps.append(
                f"Batches passed by their headers: {found.scanned_batches}, "
                f"{found.scanned_bytes:,} bytes. The batch of offsets "
                f"{batch.base_offset} to {batch.last_offset} is at byte {position:,}: "
                f"{batch.size_bytes:,} bytes."
            )
            return
        found.scanned_batches += 1
        found.scanned_bytes += batch.size_bytes
    found.steps.append("No batch here has the offset: the next segment would be read.")


def _explain_cache(found: Explanation, segment: Segment, position: int, size_bytes: int) -> None:
    descriptor = segment.file.pin()
    try:
        pages = cached_pages(descriptor, position, size_bytes)
    finally:
        segment.file.unpin()
    if pages is None:
        found.steps.append("The kernel cannot say whether it is in the page cache.")
        return
    found.is_cached = pages.cached >= pages.pages
    if found.is_cached:
        found.steps.append(
            f"All {pages.pages} pages are in the page cache: sendfile sends them without a copy."
        )
    else:
        missing = pages.pages - pages.cached
        found.steps.append(
            f"{missing} of {pages.pages} pages are on the disk only: a thread reads them first, "
            "then sendfile sends them."
        )


def explain_time(segments: Sequence[Segment], timestamp_ms: int) -> list[str]:
    """How a lookup by time chooses where to read."""
    for number, segment in enumerate(segments):
        newest = segment.read_max_timestamp()
        if newest < timestamp_ms:
            continue
        steps = [
            f"Segment {number + 1} of {len(segments)} is the first whose newest record is not "
            "older: earlier ones are skipped without reading."
        ]
        entry = segment.times.lookup_before(timestamp_ms)
        if entry is None:
            steps.append("The time index has no earlier entry: the scan starts at the beginning.")
        else:
            steps.append(
                f"The time index has {segment.times.count} entries; the last earlier one points at "
                f"offset {entry[1]}."
            )
        return steps
    return ["No segment has a record that is as new."]
