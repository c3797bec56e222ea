"""How the log finds an offset or a time, on files written here and on Kafka's."""

from pathlib import Path

import pytest

from millstream.records.builder import build_batch
from millstream.records.records import Record
from millstream.storage import offset_index, time_index
from millstream.storage.inspect import SegmentInfo, dump, list_segments
from millstream.storage.inspection.of_files import (
    cached_pages_of,
    explain_offset,
    explain_time,
    forecast,
    read_offset_index,
    read_time_index,
)

KAFKA = Path(__file__).parent.parent.parent / "golden" / "kafka_4_3_0" / "mixed-0"
HOUR_MS = 3_600_000


def write_segment(folder: Path, base: int, *, batches: int, padding: bytes = b"") -> None:
    """Batches of ten records, one a second; every second batch has an index entry."""
    log = offsets = times = b""
    for number in range(batches):
        first = base + number * 10
        records = [Record(first + i, (first + i) * 1000, None, b"v") for i in range(10)]
        if number % 2 == 1:
            offsets += offset_index.ENTRY.pack(first + 9 - base, len(log))
            times += time_index.ENTRY.pack((first + 9) * 1000, first + 9 - base)
        log += bytes(build_batch(records, base_offset=first))
    name = folder / f"{base:020}"
    name.with_suffix(".log").write_bytes(log)
    name.with_suffix(".index").write_bytes(offsets + padding)
    name.with_suffix(".timeindex").write_bytes(times + padding)


@pytest.fixture
def segments(tmp_path: Path) -> list[SegmentInfo]:
    folder = tmp_path / "t-0"
    folder.mkdir()
    write_segment(folder, 0, batches=8)
    write_segment(folder, 80, batches=4, padding=bytes(240))
    return list_segments(folder)


def test_indexes_are_read_without_what_kafka_allocates_ahead(segments: list[SegmentInfo]) -> None:
    assert [entry.offset for entry in read_offset_index(segments[0])] == [19, 39, 59, 79]
    assert [entry.offset for entry in read_offset_index(segments[1])] == [99, 119]
    assert [entry.timestamp_ms for entry in read_time_index(segments[1])] == [99_000, 119_000]


def test_the_entry_below_the_offset_starts_the_scan(segments: list[SegmentInfo]) -> None:
    found = explain_offset(segments, 45)
    assert found.segment.base_offset == 0
    assert found.entry is not None
    assert found.entry.offset == 39
    # The entry's own batch, and the next.
    assert (found.batches_scanned, found.batch_base_offset, found.batch_last_offset) == (2, 40, 49)
    assert [probe.key for probe in found.probes] == [59, 39]
    assert [probe.is_below for probe in found.probes] == [False, True]


def test_without_an_entry_the_scan_starts_at_the_segment(segments: list[SegmentInfo]) -> None:
    found = explain_offset(segments, 85)
    assert (found.segment.base_offset, found.entry, found.bytes_scanned) == (80, None, 0)
    assert found.batch_base_offset == 80


def test_beyond_the_end_there_is_no_batch(segments: list[SegmentInfo]) -> None:
    found = explain_offset(segments, 120)
    assert found.batch_position is None
    assert found.is_batch_cached is None


def test_a_time_rules_out_older_segments(segments: list[SegmentInfo]) -> None:
    found = explain_time(segments, 101_500)
    assert (found.segments_skipped, found.offset) == (1, 100)
    assert found.entry is not None
    assert found.entry.timestamp_ms == 99_000
    assert explain_time(segments, 0).offset == 0
    assert explain_time(segments, 10**9).offset is None


@pytest.mark.parametrize("which", ["kafka", "ours"])
def test_every_offset_is_found_in_its_batch(which: str, segments: list[SegmentInfo]) -> None:
    found = list_segments(KAFKA) if which == "kafka" else segments
    for batch in dump(found[0].path.parent, records=False):
        for offset in {batch.base_offset, batch.last_offset}:
            explained = explain_offset(found, offset)
            assert explained.segment.path == batch.path
            assert explained.batch_position == batch.position
            assert explained.batch_bytes == batch.size_bytes


def test_pages_of_a_file_just_written_are_cached(segments: list[SegmentInfo]) -> None:
    pages = cached_pages_of(segments[0].path)
    # None on a kernel that does not say.
    assert pages is None or 0 < pages.cached <= pages.pages == 1


def test_retention_removes_the_oldest_first(segments: list[SegmentInfo]) -> None:
    first, last = forecast(segments, retention_ms=HOUR_MS, retention_bytes=-1, now_ms=200_000)
    assert first.by_time_ms == 79_000 + HOUR_MS
    assert last.by_time_ms == 119_000 + HOUR_MS
    assert (first.by_size_after_bytes, first.is_active, last.is_active) == (None, False, True)


def test_retention_by_size_counts_what_must_still_come(segments: list[SegmentInfo]) -> None:
    total = sum(info.size_bytes for info in segments)
    first, last = forecast(segments, retention_ms=-1, retention_bytes=total, now_ms=0)
    assert (first.by_time_ms, first.by_size_after_bytes) == (None, segments[0].size_bytes)
    assert last.by_size_after_bytes == total
    first, _ = forecast(segments, retention_ms=-1, retention_bytes=0, now_ms=0)
    assert first.by_size_after_bytes == 0
