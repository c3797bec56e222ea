"""Large files lose their name at once; a thread frees their space."""

import os
import threading
from pathlib import Path
from queue import SimpleQueue

import pytest

from millstream.broker.node import disposal
from millstream.broker.node.disposal import Disposal

SECONDS_MAX = 60


class Closer:
    """Says which thread has closed a descriptor."""

    def __init__(self) -> None:
        self.threads: SimpleQueue[str] = SimpleQueue()
        self.may_close = threading.Event()
        self.may_close.set()

    def __call__(self, descriptor: int) -> None:
        assert self.may_close.wait(SECONDS_MAX)
        os.close(descriptor)
        self.threads.put(threading.current_thread().name)


@pytest.fixture
def closer() -> Closer:
    return Closer()


def test_a_large_file_is_freed_by_the_thread(
    tmp_path: Path, closer: Closer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disposal, "_LARGE_BYTES", 10)
    removing = Disposal(closer)
    for name in ("first", "second"):
        (tmp_path / name).write_bytes(b"x" * 10)
        removing.remove(str(tmp_path / name))
        assert not (tmp_path / name).exists()
        assert closer.threads.get(timeout=SECONDS_MAX) == "disposal"


def test_what_is_small_or_no_file_is_removed_without_the_thread(
    tmp_path: Path, closer: Closer
) -> None:
    large, small, link = tmp_path / "large", tmp_path / "small", tmp_path / "link"
    large.touch()
    os.truncate(large, 1 << 30)
    small.write_bytes(b"x")
    link.symlink_to(large)
    removing = Disposal(closer)
    for path in (small, link):
        removing.remove(str(path))
        assert not path.is_symlink()
        assert not path.exists()
    assert large.exists()
    assert removing._thread is None


def test_a_missing_file_is_an_error(tmp_path: Path, closer: Closer) -> None:
    with pytest.raises(FileNotFoundError, match="gone"):
        Disposal(closer).remove(str(tmp_path / "gone"))


def test_files_are_removed_however_many_wait(
    tmp_path: Path, closer: Closer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disposal, "_LARGE_BYTES", 1)
    monkeypatch.setattr(disposal, "_WAITING_MAX", 2)
    closer.may_close.clear()
    removing = Disposal(closer)
    paths = [tmp_path / str(number) for number in range(10)]
    for path in paths:
        path.write_bytes(b"x")
        removing.remove(str(path))
    assert not any(path.exists() for path in paths)
    # One more may be in the thread's hands.
    assert removing._waiting.qsize() <= 2
    closer.may_close.set()
    assert closer.threads.get(timeout=SECONDS_MAX) == "disposal"
