"""Covers storage/inspection/explain.py, storage/inspection/cached_pages.py."""

import os
from pathlib import Path

import pytest

from millstream.model import TopicPartition
from millstream.storage.files import DescriptorCache, OsFileSystem
from millstream.storage.inspection.cached_pages import PAGE_BYTES, cache_map, cached_pages
from millstream.storage.inspection.explain import explain_offset, explain_time
from millstream.storage.log import Log
from millstream.storage.recovery import recover_log
from tests.storage.logs import CLEAN, NOW_MS, append, batch, make_log_config


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Three segments of a few indexed batches each."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    found = recover_log(
        str(directory),
        TopicPartition("t", 0),
        make_log_config(segment_bytes=20_000, index_interval_bytes=1_000),
        CLEAN,
        cache=DescriptorCache(OsFileSystem(), 100),
        device=os.stat(directory).st_dev,
        report=lambda text: None,
    )
    for number in range(100):
        append(found, batch(value=b"x" * 400, timestamp_ms=NOW_MS + number))
    return found


@pytest.mark.parametrize("offset", [0, 1, 37, 60, 99])
def test_the_explanation_ends_where_a_fetch_begins(log: Log, offset: int) -> None:
    number = log.segments.number_of(offset)
    found = explain_offset(log.segments.all, number, offset)
    assert (found.position, found.batch_bytes) == log.segments[number].find(offset)
    assert found.batch_base_offset == offset
    assert found.index_position + found.scanned_bytes == found.position
    # The index makes the scan short.
    assert found.scanned_bytes < 3_000
    assert f"Segment {number + 1} of {len(log.segments)}" in found.steps[0]


def test_a_lookup_by_time_skips_older_segments(log: Log) -> None:
    assert len(log.segments) == 3
    steps = explain_time(log.segments.all, NOW_MS + 95)
    assert "Segment 3 of 3" in steps[0]
    assert "time index" in steps[1]
    assert explain_time(log.segments.all, NOW_MS + 1_000) == [
        "No segment has a record that is as new."
    ]


def test_a_file_that_was_just_written_is_cached(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * (10 * PAGE_BYTES + 1))
    with path.open("rb") as file:
        found = cached_pages(file.fileno(), 0, 10 * PAGE_BYTES + 1)
        pieces = cache_map(file.fileno(), 10 * PAGE_BYTES + 1, pieces=4)
        nothing = cached_pages(file.fileno(), 0, 0)
    assert nothing is None or nothing.pages == 0
    if found is None:
        # A kernel before 6.5, or a file system without a page cache.
        assert pieces == []
        return
    assert (found.pages, found.cached_share) == (11, 1.0)
    assert [each.pages for each in pieces] == [3, 3, 3, 2]
