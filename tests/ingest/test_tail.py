"""Files that grow, are renamed, truncated and replaced, with and without a restart between."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from millstream.ingest.tail import FileMark, Tail


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "access.log"


Open = Callable[..., Tail]


@pytest.fixture
def open_tail(log: Path) -> Iterator[Open]:
    tails = []

    def make(mark: FileMark | None = None) -> Tail:
        tails.append(Tail(log, mark, line_bytes_max=100))
        return tails[-1]

    yield make
    for tail in tails:
        tail.close()


def append(path: Path, text: str, *, age: int = 0) -> None:
    with path.open("a") as file:
        file.write(text)
    # Times are given: two writes may fall into one tick of the file system's clock.
    os.utime(path, (1_000_000 - age, 1_000_000 - age))


def read_all(tail: Tail) -> list[str]:
    lines = []
    # An empty answer may only mean that the next file was opened.
    for _ in range(6):
        lines += [line.data.decode() for line in tail.read()]
    return lines


def mark_after(tail: Tail, count: int) -> FileMark:
    lines = tail.read()
    line = lines[count - 1]
    return tail.mark(line.generation, line.end_position)


def test_lines_come_as_they_are_written(log: Path, open_tail: Open) -> None:
    tail = open_tail()
    assert read_all(tail) == []
    append(log, "one\ntwo\nth")
    assert read_all(tail) == ["one", "two"]
    append(log, "ree\n")
    assert read_all(tail) == ["three"]


def test_a_renamed_file_is_read_to_its_end_before_the_new_one(log: Path, open_tail: Open) -> None:
    append(log, "one\n", age=9)
    tail = open_tail()
    assert read_all(tail) == ["one"]
    log.rename(log.with_name("access.log.1"))
    append(log.with_name("access.log.1"), "late\nunfinished", age=8)
    append(log, "new\n")
    assert read_all(tail) == ["late", "unfinished", "new"]
    assert tail.counts.rotations == 1


def test_two_rotations_between_two_looks_lose_nothing(log: Path, open_tail: Open) -> None:
    append(log, "one\n", age=9)
    tail = open_tail()
    assert read_all(tail) == ["one"]
    log.rename(log.with_name("access.log.2"))
    append(log, "two\n", age=5)
    log.rename(log.with_name("access.log.1"))
    append(log, "three\n")
    assert read_all(tail) == ["two", "three"]


def test_other_files_beside_it_are_left_alone(log: Path, open_tail: Open) -> None:
    append(log, "one\n", age=9)
    tail = open_tail()
    read_all(tail)
    append(log.with_name("access.log.bak"), "no\n")
    append(log.with_name("access.log.1.gz"), "no\n")
    log.rename(log.with_name("access.log.1"))
    append(log, "two\n")
    assert read_all(tail) == ["two"]


def test_a_truncated_file_is_read_from_its_start(log: Path, open_tail: Open) -> None:
    append(log, "one\ntwo\n")
    tail = open_tail()
    assert read_all(tail) == ["one", "two"]
    log.write_text("")
    assert read_all(tail) == []
    append(log, "three\n")
    assert read_all(tail) == ["three"]
    assert tail.counts.truncations == 1


def test_a_truncated_file_that_grew_past_the_old_end_is_noticed(log: Path, open_tail: Open) -> None:
    append(log, "one\n")
    tail = open_tail()
    assert read_all(tail) == ["one"]
    log.write_text("1\n22\n333\n4444\n")
    assert read_all(tail) == ["1", "22", "333", "4444"]
    assert tail.counts.truncations == 1


def test_a_new_start_goes_on_after_the_mark(log: Path, open_tail: Open) -> None:
    append(log, "one\ntwo\nthree\n")
    mark = mark_after(open_tail(), 2)
    assert read_all(open_tail(mark)) == ["three"]


def test_a_new_start_finds_the_file_that_was_rotated_meanwhile(log: Path, open_tail: Open) -> None:
    append(log, "one\ntwo\n", age=9)
    mark = mark_after(open_tail(), 1)
    log.rename(log.with_name("access.log.2"))
    append(log, "three\n", age=5)
    log.rename(log.with_name("access.log.1"))
    append(log, "four\n")
    tail = open_tail(mark)
    assert read_all(tail) == ["two", "three", "four"]
    assert tail.counts.gaps == 0


def test_a_new_start_finds_the_copy_after_copytruncate(log: Path, open_tail: Open) -> None:
    append(log, "one\ntwo\n", age=9)
    mark = mark_after(open_tail(), 1)
    append(log.with_name("access.log.1"), log.read_text(), age=8)
    log.write_text("three\n")
    assert read_all(open_tail(mark)) == ["two", "three"]


def test_a_file_that_cannot_be_found_again_is_counted(log: Path, open_tail: Open) -> None:
    append(log, "one\ntwo\n")
    mark = mark_after(open_tail(), 1)
    log.unlink()
    append(log, "other\n")
    tail = open_tail(mark)
    assert read_all(tail) == ["other"]
    assert tail.counts.gaps == 1


def test_a_read_that_is_only_part_of_a_line_is_not_the_end(log: Path) -> None:
    append(log, "x" * 300_000 + "\n")
    tail = Tail(log, None, line_bytes_max=1_000_000)
    assert tail.read() == []
    assert not tail.is_at_end
    assert len(tail.read()[0].data) == 300_000
    assert tail.read() == []
    assert tail.is_at_end
    tail.close()
