"""The segments of one log as a whole: which holds an offset, and how large they are."""

import errno

import pytest

from tests.storage.logs import append, batch, make_log_config, open_log
from tests.storage.memory_files import MemoryFileSystem


def test_the_last_segment_that_begins_at_or_before_an_offset_holds_it() -> None:
    log = open_log(MemoryFileSystem())
    for _ in range(3):
        append(log, batch(2))
        log.roll()
    segments = log.segments
    assert [segment.base_offset for segment in segments] == [0, 2, 4, 6]
    assert [segments.number_of(offset) for offset in (0, 1, 2, 5, 6, 99)] == [0, 0, 1, 2, 3, 3]
    assert segments.active is segments[-1]
    assert segments.base_offsets() == {0, 2, 4, 6}
    assert segments.size_bytes == 3 * len(batch(2))


def test_an_empty_segment_that_the_next_offsets_do_not_fit_goes() -> None:
    log = open_log(MemoryFileSystem())
    log.segments.begin(7, log.config, 0)
    assert [segment.base_offset for segment in log.segments] == [7]


@pytest.mark.parametrize(("offset", "end"), [(3, 2), (2, 2), (5, 4)])
def test_a_cut_drops_the_whole_batch_and_what_is_behind_it(offset: int, end: int) -> None:
    log = open_log(MemoryFileSystem(), make_log_config())
    for _ in range(2):
        append(log, batch(2))
        log.roll()
    append(log, batch(2))
    assert log.segments.cut_at(offset, log.config) == end
    assert log.segments.active is log.segments[-1]
    assert log.unsynced.truncations == 1


def test_a_cut_that_cannot_read_leaves_the_log_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryFileSystem()
    log = open_log(disk)
    for _ in range(3):
        append(log, batch(2))
        log.roll()
    segments = list(log.segments)

    def fail(descriptor: int, length: int, position: int) -> bytes:
        raise OSError(errno.EIO, "cannot read")

    with monkeypatch.context() as broken:
        broken.setattr(disk, "read_at", fail)
        with pytest.raises(OSError, match="cannot read"):
            log.truncate_to(2)
    assert list(log.segments) == segments
    assert log.segments.active is segments[-1]
    log.truncate_to(2)
    assert log.next_offset == 2
    append(log, batch(2))
    assert log.next_offset == 4
