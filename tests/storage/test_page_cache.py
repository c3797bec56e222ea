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
