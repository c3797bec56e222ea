"""Files that grow, are renamed, truncated and replaced, with and without a restart between."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from millstream.ingest.blocks import BlockJoiner
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


def copytruncate(log: Path, copy: str, *, age: int = 0) -> None:
    append(log.with_name(copy), log.read_text(), age=age)
    log.write_text("")


@pytest.mark.parametrize("new", [1_000, 40_000])
def test_a_copied_and_truncated_file_is_read_to_its_end_in_the_copy(log: Path, new: int) -> None:
    """Also if what came since is longer than what had been read, and if a line was half read."""
    old_lines = [f"old {number:07}" for number in range(60_000)]
    new_lines = [f"new {number:07}" for number in range(new)]
    append(log, "".join(f"{line}\n" for line in old_lines))
    tail = Tail(log, None, line_bytes_max=100)
    lines = tail.read()
    assert 0 < len(lines) < 60_000
    assert tail.mark(1, lines[-1].end_position).position < 256 * 1024
    copytruncate(log, "access.log.1", age=9)
    append(log, "".join(f"{line}\n" for line in new_lines))
    while more := tail.read() or tail.read():
        lines += more
    assert [line.data.decode() for line in lines] == old_lines + new_lines
    # A block of lines of which one part was read in the copy is still one block.
    assert {line.generation for line in lines[:60_000]} == {lines[0].generation}
    assert (tail.counts.truncations, tail.counts.gaps) == (1, 0)
    tail.close()


def test_a_file_that_is_copied_and_truncated_twice_between_two_looks_loses_nothing(
    log: Path, open_tail: Open
) -> None:
    append(log, "one\n")
    tail = open_tail()
    assert read_all(tail) == ["one"]
    append(log, "two\n")
    copytruncate(log, "access.log.2", age=9)
    append(log, "three\nfour\n")
    copytruncate(log, "access.log.1", age=8)
    append(log, "five\n")
    assert read_all(tail) == ["two", "three", "four", "five"]
    assert tail.counts.gaps == 0


def test_a_file_that_is_copied_and_truncated_before_its_first_line_is_read_loses_nothing(
    log: Path, open_tail: Open
) -> None:
    append(log, "one\n")
    tail = open_tail()
    assert read_all(tail) == ["one"]
    copytruncate(log, "access.log.2", age=9)
    assert read_all(tail) == []
    append(log, "two\n")
    copytruncate(log, "access.log.1", age=8)
    append(log, "three\n")
    assert read_all(tail) == ["two", "three"]
    assert tail.counts.gaps == 0


def test_a_file_that_is_being_copied_is_read_once(log: Path, open_tail: Open) -> None:
    append(log, "one\n", age=9)
    tail = open_tail()
    assert read_all(tail) == ["one"]
    log.rename(log.with_name("access.log.2"))
    lines = [f"line {number}" for number in range(200)]
    text = "".join(f"{line}\n" for line in lines)
    append(log, text)
    append(log.with_name("access.log.1"), text[:1000], age=8)
    assert read_all(tail) == lines
    append(log.with_name("access.log.1"), text[1000:], age=7)
    log.write_text("two\n")
    assert read_all(tail) == ["two"]
    assert tail.counts.gaps == 0


def test_files_that_all_begin_with_the_same_header_are_all_read(log: Path, open_tail: Open) -> None:
    header = "#" * 90 + "\n"
    append(log, header * 4 + "one\n", age=9)
    tail = open_tail()
    read_all(tail)
    rotate(log, 0)
    append(log, header * 4 + "two\n", age=8)
    rotate(log, 1)
    append(log, header * 4 + "three\n")
    assert [line for line in read_all(tail) if line[0] != "#"] == ["two", "three"]


def test_a_block_goes_on_in_the_copy(log: Path, open_tail: Open) -> None:
    append(log, "Start 1\n a\n b")
    tail, joiner = open_tail(), BlockJoiner(b"Start")
    assert joiner.join(tail.read()) == []
    append(log, "c\n d\nStart 2\n e\n")
    copytruncate(log, "access.log.1", age=9)
    append(log, "Start 3 after two that are of the copy\n f\n")
    blocks = []
    for _ in range(6):
        blocks += joiner.join(tail.read())
    blocks += joiner.flush()
    assert [block.data.decode() for block in blocks] == [
        "Start 1\n a\n bc\n d",
        "Start 2\n e",
        "Start 3 after two that are of the copy\n f",
    ]


def test_a_new_start_goes_on_in_the_copy_and_then_in_the_file(log: Path, open_tail: Open) -> None:
    append(log, "one\n")
    tail = open_tail()
    assert read_all(tail) == ["one"]
    append(log, "two\nthree\n")
    copytruncate(log, "access.log.1", age=9)
    append(log, "four\n")
    assert tail.read() == []
    mark = mark_after(tail, 1)
    assert read_all(open_tail(mark)) == ["three", "four"]


def test_a_truncated_file_without_a_copy_is_counted_as_a_gap(log: Path, open_tail: Open) -> None:
    append(log, "one\ntwo")
    tail = open_tail()
    assert read_all(tail) == ["one"]
    log.write_text("three\nfour and more\n")
    assert read_all(tail) == ["two", "three", "four and more"]
    assert (tail.counts.truncations, tail.counts.gaps) == (1, 1)


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


def rotate(log: Path, count: int) -> None:
    for number in range(count, 0, -1):
        log.with_name(f"access.log.{number}").rename(log.with_name(f"access.log.{number + 1}"))
    log.rename(log.with_name("access.log.1"))


def test_a_rotation_while_rotated_files_are_read_skips_none(log: Path, open_tail: Open) -> None:
    append(log, "one\ntwo\n", age=9)
    mark = mark_after(open_tail(), 1)
    for number, line in enumerate(["three", "four", "five"]):
        rotate(log, number)
        append(log, f"{line}\n", age=8 - number)
    tail = open_tail(mark)
    assert [line.data for line in tail.read()] == [b"two"]
    rotate(log, 3)
    append(log, "six\n", age=1)
    assert tail.read() == []
    assert [line.data for line in tail.read()] == [b"three"]
    rotate(log, 4)
    append(log, "seven\n")
    assert read_all(tail) + read_all(tail) == ["four", "five", "six", "seven"]
    assert tail.counts.gaps == 0


@pytest.mark.parametrize("is_packed", [False, True])
def test_a_rotated_file_that_is_gone_before_its_turn_is_counted(
    log: Path, open_tail: Open, is_packed: bool
) -> None:
    append(log, "one\ntwo\n", age=9)
    mark = mark_after(open_tail(), 1)
    for number, line in enumerate(["three", "four", "five"]):
        rotate(log, number)
        append(log, f"{line}\n", age=8 - number)
    tail = open_tail(mark)
    if is_packed:
        append(log.with_name("access.log.2.gz"), "packed", age=8)
    log.with_name("access.log.2").unlink()
    assert read_all(tail) + read_all(tail) == ["two", "four", "five"]
    assert tail.counts.gaps == 1


def test_a_name_that_is_gone_for_a_while_is_waited_for(log: Path, open_tail: Open) -> None:
    append(log, "one\n", age=9)
    tail = open_tail()
    assert read_all(tail) == ["one"]
    rotate(log, 0)
    assert read_all(tail) == []
    append(log, "two\n", age=8)
    rotate(log, 1)
    append(log, "three\n")
    assert read_all(tail) == ["two", "three"]
    assert (tail.counts.rotations, tail.counts.gaps) == (2, 0)


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
