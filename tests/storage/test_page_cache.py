import errno
import os
from pathlib import Path

import pytest

from millstream.storage import page_cache


def test_what_was_just_written_is_read_without_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A broker in memory may have found out in this process that tmpfs cannot say.
    monkeypatch.setattr(page_cache, "_nowait", os.RWF_NOWAIT)
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    descriptor = os.open(path, os.O_RDONLY)
    try:
        assert page_cache.read_if_cached(descriptor, 2, 5) == b"23456"
        # The range ends behind the file.
        assert page_cache.read_if_cached(descriptor, 2, 50) is None
    finally:
        os.close(descriptor)


def test_a_file_system_that_cannot_say_is_not_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_cache, "_nowait", 1 << 30)
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    descriptor = os.open(path, os.O_RDONLY)
    try:
        assert page_cache.read_if_cached(descriptor, 0, 5) is None
        assert page_cache._nowait == 0
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("problem", [None, errno.EINVAL, errno.EMFILE])
def test_a_cold_range_is_read_with_splice_or_without(
    problem: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **options: object) -> int:
        assert problem is not None
        raise OSError(problem, os.strerror(problem))

    is_cached = False
    monkeypatch.setattr(page_cache.Question, "is_cached", lambda *arguments: is_cached)
    if problem is not None:
        monkeypatch.setattr(os, "splice", refuse)
    path = tmp_path / "file"
    path.write_bytes(bytes(3_000_000))
    open_before = len(os.listdir("/proc/self/fd"))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        assert page_cache.warm(descriptor, 1000, 2_500_000)
        # Compaction or retention may have left less than the range.
        assert page_cache.warm(descriptor, 2_000_000, 2_000_000)
        is_cached = True
        assert not page_cache.warm(descriptor, 1000, 2_500_000)
    finally:
        os.close(descriptor)
    assert len(os.listdir("/proc/self/fd")) == open_before


def test_a_range_that_cannot_be_read_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object, **options: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(page_cache.Question, "is_cached", lambda *arguments: False)
    monkeypatch.setattr(os, "splice", fail)
    path = tmp_path / "file"
    path.write_bytes(bytes(10))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with pytest.raises(OSError, match="Input/output error"):
            page_cache.warm(descriptor, 0, 10)
    finally:
        os.close(descriptor)
