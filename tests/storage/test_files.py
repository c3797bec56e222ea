"""Files whose descriptors come and go."""

import errno
import os
import stat
from pathlib import Path

import pytest

from millstream.storage.files import (
    DescriptorCache,
    LogFile,
    OsFileSystem,
    read_file,
    write_file,
)
from tests.storage.memory_files import MemoryFileSystem


def make_file(cache: DescriptorCache, path: str, *, needs_sync: bool = False) -> LogFile:
    file = LogFile(cache, path, size_bytes=0, needs_sync=needs_sync)
    file.create()
    return file


def test_the_least_recently_used_file_is_closed_and_opens_again() -> None:
    disk = MemoryFileSystem()
    cache = DescriptorCache(disk, 2)
    files = [make_file(cache, f"/{number}") for number in range(5)]
    assert disk.open_count == 2
    for number, file in enumerate(files):
        file.append(bytes([number]))
    assert disk.open_count == 2
    assert [file.read_at(0, 1) for file in files] == [bytes([number]) for number in range(5)]


def test_a_pinned_file_stays_open_and_is_the_same_descriptor() -> None:
    disk = MemoryFileSystem()
    cache = DescriptorCache(disk, 1)
    file = make_file(cache, "/pinned")
    descriptor = file.pin()
    for number in range(5):
        make_file(cache, f"/{number}")
    assert file.descriptor == descriptor
    assert disk.read_at(descriptor, 1, 0) == b""
    file.unpin()
    for number in range(5):
        make_file(cache, f"/{number}")
    assert file.descriptor == -1


def test_a_file_with_unsynced_bytes_is_never_closed_by_the_cache() -> None:
    disk = MemoryFileSystem()
    cache = DescriptorCache(disk, 1)
    file = make_file(cache, "/dirty", needs_sync=True)
    file.append(b"x")
    for number in range(5):
        make_file(cache, f"/{number}")
    assert file.descriptor >= 0
    file.is_dirty = False
    for number in range(5):
        make_file(cache, f"/{number}")
    assert file.descriptor == -1


def test_removal_waits_for_the_last_reader() -> None:
    disk = MemoryFileSystem()
    file = make_file(DescriptorCache(disk, 10), "/file")
    file.append(b"content")
    first, second = file.pin(), file.pin()
    file.remove_when_unpinned()
    file.unpin()
    assert disk.read_at(first, 7, 0) == disk.read_at(second, 7, 0) == b"content"
    assert disk.paths() == ["/file"]
    file.unpin()
    assert disk.paths() == []
    assert disk.open_count == 0


def test_a_short_write_is_continued_and_a_failed_one_taken_back() -> None:
    disk = MemoryFileSystem()
    file = make_file(DescriptorCache(disk, 10), "/file")
    file.append(b"first")
    disk.free_bytes = 3
    with pytest.raises(OSError) as full:
        file.append(b"second")
    assert full.value.errno == errno.ENOSPC
    assert bytes(disk.data("/file")) == b"first"
    assert file.size_bytes == 5


class StutteringFileSystem(MemoryFileSystem):
    """Writes a byte at a time, as a kernel may."""

    def write_at(self, descriptor: int, data: bytes | bytearray | memoryview, position: int) -> int:
        return super().write_at(descriptor, data[:1], position)


def test_writes_that_stop_short_are_continued() -> None:
    disk = StutteringFileSystem()
    file = make_file(DescriptorCache(disk, 10), "/file")
    assert file.append(b"several bytes") == 0
    assert bytes(disk.data("/file")) == b"several bytes"


def test_a_small_file_is_replaced_whole(tmp_path: Path) -> None:
    system = OsFileSystem()
    path = str(tmp_path / "small")
    assert read_file(system, path) is None
    for content in (b"long content", b"short"):
        write_file(system, path, content, is_synced=True)
        assert read_file(system, path) == content
    assert os.listdir(tmp_path) == ["small"]


def test_the_real_file_system_does_what_the_engine_asks(tmp_path: Path) -> None:
    system = OsFileSystem()
    directory = str(tmp_path / "directory")
    system.make_directory(directory)
    descriptor = system.open(f"{directory}/file", create=True)
    assert system.write_at(descriptor, b"0123456789", 0) == 10
    system.truncate(descriptor, 4)
    system.sync(descriptor)
    system.sync_directory(directory)
    assert system.read_at(descriptor, 100, 1) == b"123"
    system.close(descriptor)
    (info,) = system.list(directory)
    assert (info.name, info.size_bytes, info.is_directory) == ("file", 4, False)
    assert info.modified_ms > 0
    system.rename(f"{directory}/file", f"{directory}/other")
    system.remove(f"{directory}/other")
    system.remove_directory(directory)
    assert system.list(str(tmp_path)) == []
    with pytest.raises(FileNotFoundError):
        system.open(f"{directory}/file", create=False)


def test_what_is_made_is_for_its_owner_alone(tmp_path: Path) -> None:
    disk = OsFileSystem()
    disk.make_directory(str(tmp_path / "t-0"))
    path = tmp_path / "t-0" / "0.log"
    disk.close(disk.open(str(path), create=True))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_no_symbolic_link_is_followed(tmp_path: Path) -> None:
    disk = OsFileSystem()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("not ours")
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "0.log").symlink_to(elsewhere)
    with pytest.raises(OSError, match="symbolic"):
        disk.open(str(folder / "0.log"), create=True)
    with pytest.raises(OSError, match="symbolic link in a data directory"):
        disk.list(str(folder))
    assert elsewhere.read_text() == "not ours"


def test_the_lock_is_held_against_other_processes(tmp_path: Path) -> None:
    import subprocess
    import sys

    path = str(tmp_path / ".lock")
    held = OsFileSystem().lock(path)
    assert held is not None
    program = (
        "import sys; from millstream.storage.files import OsFileSystem;"
        f"sys.exit(3 if OsFileSystem().lock({path!r}) is None else 0)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 3
    os.close(held)
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_the_identity_of_boot_and_mount_is_stable(tmp_path: Path) -> None:
    system = OsFileSystem()
    assert system.identity(str(tmp_path)) == system.identity(str(tmp_path))


def test_a_file_closed_while_pinned_gives_its_descriptor_back_at_the_end() -> None:
    disk = MemoryFileSystem()
    file = make_file(DescriptorCache(disk, 10), "/file")
    descriptor = file.pin()
    file.close()
    assert file.descriptor == descriptor
    file.unpin()
    assert disk.open_count == 0


def test_without_descriptors_in_the_process_other_files_are_closed() -> None:
    class Scarce(MemoryFileSystem):
        def open(self, path: str, *, create: bool) -> int:
            if self.open_count >= 3:
                raise OSError(errno.EMFILE, "Too many open files", path)
            return super().open(path, create=create)

    disk = Scarce()
    cache = DescriptorCache(disk, 100)
    for number in range(10):
        file = LogFile(cache, f"/{number}", size_bytes=0, needs_sync=False)
        file.create()
        assert file.append(b"x") == 0
    assert cache.open_count == disk.open_count <= 3


def test_a_new_file_is_cut_only_if_something_is_left_under_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = MemoryFileSystem()
    cut: list[int] = []
    truncate = disk.truncate

    def note(descriptor: int, size_bytes: int) -> None:
        cut.append(descriptor)
        truncate(descriptor, size_bytes)

    monkeypatch.setattr(disk, "truncate", note)
    cache = DescriptorCache(disk, 10)
    first = make_file(cache, "/first")
    assert cut == []
    first.append(b"left")
    first.close()
    again = make_file(cache, "/first")
    assert (len(cut), again.size_bytes, again.read_at(0, 10)) == (1, 0, b"")


def test_writing_a_piece_back_leaves_the_file_as_it_is_and_tells_of_errors(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(b"x" * 3_000_000)
    disk = OsFileSystem()
    descriptor = disk.open(str(path), create=False)
    disk.write_back(descriptor, 1_000_000, 1_000_000)
    disk.close(descriptor)
    assert path.read_bytes() == b"x" * 3_000_000
    # A sync of the same descriptor would not tell of it again.
    with pytest.raises(OSError, match="Bad file descriptor"):
        disk.write_back(-1, 0, 1)
