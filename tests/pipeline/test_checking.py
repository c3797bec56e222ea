"""Trying the parser on files: what it reads, and what it says about the rest."""

from dataclasses import replace
from pathlib import Path

import pytest

from millstream.cli.pipeline_check import _joined, _print, read_sample
from millstream.ingest.blocks import BlockJoiner
from millstream.ingest.traces import TraceJoiner
from millstream.lines.rules import SourceRule
from millstream.pipeline.checking import Advice, Checked, Failed, Sample, check_samples
from millstream.pipeline.spec import parse_spec
from tests.pipeline.conftest import MakeSpec

IN_2026_MS = 1_789_999_200_000


def test_formats_and_the_first_lines_that_failed_are_told_for_each_file(
    make_spec: MakeSpec,
) -> None:
    json_line, text = b'{"ts":"2011-01-01T00:00:00Z"}', b"081109 203615 148 INFO a: b"
    samples = [
        Sample("h/mixed", IN_2026_MS, [json_line, text, b"nothing", text, b"\xffno", b"more"]),
        Sample("h/empty", IN_2026_MS, []),
        Sample("h/syslog", IN_2026_MS, [b"Sep 21 13:59:58 db-1 su: hi"]),
    ]
    mixed, empty, syslog = check_samples(make_spec(), samples, failed_shown=2)
    assert (mixed.lines, mixed.read, mixed.formats) == (6, 3, {"text": 2, "json": 1})
    assert mixed.failed == [
        Failed(3, "no known format", "nothing"),
        Failed(5, "not UTF-8", "\ufffdno"),
    ]
    assert (empty.lines, empty.read, empty.failed) == (0, 0, [])
    assert syslog.formats == {"rfc3164": 1}


def test_lines_are_numbered_on_from_batch_to_batch(make_spec: MakeSpec) -> None:
    lines = [b"2026-09-21T14:00:00Z a", b"nothing"] * 1500
    [found] = check_samples(
        make_spec(), [Sample("h/long", IN_2026_MS, lines)], failed_shown=len(lines)
    )
    assert (found.lines, found.read, found.formats) == (3000, 1500, {"text": 1500})
    assert [failed.line for failed in found.failed] == list(range(2, 3001, 2))


def test_a_sample_is_the_start_of_a_file_cut_as_it_is_shipped(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(b"one\n\ntwo\r\n" + b"a" * 1_000_000 + b"\nlast")
    sample = read_sample(path, 100)
    assert [len(line) for line in sample.lines] == [3, 3, 900_000, 100_000, 4]
    assert list(read_sample(path, 2).lines) == [b"one", b"two"]
    path.write_bytes(b"")
    assert list(read_sample(path, 2).lines) == []


def test_traces_are_joined_as_they_are_shipped() -> None:
    sample = Sample("h/x", IN_2026_MS, [b"one", b"\tat a", b"\tat b", b"two"], [1, 2, 4, 7])
    joined = _joined(sample, TraceJoiner())
    assert list(joined.lines) == [b"one\n\tat a\n\tat b", b"two"]
    assert list(joined.numbers) == [1, 7]


def test_a_line_that_failed_has_its_number_in_the_file(make_spec: MakeSpec, tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(b"\n\nwrong\n\r\n" + b"a" * 1_000_000 + b"\nagain\n")
    [found] = check_samples(make_spec(), [read_sample(path, 9)], failed_shown=9)
    assert [each.line for each in found.failed] == [3, 5, 5, 6]


@pytest.mark.parametrize(
    "lines",
    [
        [b"Start: \xff 2026-01-01  10:00:00", b"a \xff"] * 3,
        "2026-01-01 10:00:00 hi\n".encode("utf-16").splitlines() * 3,
        [b"Start\x01: 2026-01-01  10:00:00", b"a\x01"] * 3,
    ],
)
def test_nothing_is_suggested_for_lines_that_no_pattern_can_read(
    make_spec: MakeSpec, lines: list[bytes]
) -> None:
    [found] = check_samples(make_spec(), [Sample("h/x", IN_2026_MS, lines)], failed_shown=0)
    assert (found.read, found.advice) == (0, None)


def test_the_name_of_a_file_need_not_be_utf_8(make_spec: MakeSpec, tmp_path: Path) -> None:
    path = tmp_path / "x\udcff.log"
    path.write_bytes(b"2026-01-01 10:00:00 hi\n")
    [found] = check_samples(make_spec(), [read_sample(path, 9)], failed_shown=0)
    assert found.read == 1
    assert found.source.endswith("/x\ufffd.log")


def test_a_pattern_is_suggested_that_the_pipeline_then_reads(make_spec: MakeSpec) -> None:
    lines = [b"09-21 13:59:%02d.5  17  18 W Cart: no stock of %d" % (at, at) for at in range(9)]
    sample = Sample("h/app.log", IN_2026_MS, lines)
    [before] = check_samples(make_spec(), [sample], failed_shown=1)
    assert (before.read, before.failed[0].detail) == (0, "no known format")
    pattern = "<time:%m-%d %H:%M:%S.%f> <pid> <tid> <level> <program>: <message>"
    assert before.advice == Advice(pattern)
    spec = replace(make_spec(), sources=(SourceRule("*app.log", patterns=(pattern,)),))
    [after] = check_samples(spec, [sample], failed_shown=1)
    assert (after.read, after.formats, after.advice) == (9, {"pattern": 9}, None)


def test_a_suggested_pattern_is_printed_as_the_file_has_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _print([Checked("h/var/a.log", 1, 0, {}, [], Advice('<time> \'<level>\\ "<message>"'))])
    said = capsys.readouterr().err
    text = said[said.index("[[") : said.index("1 line")]
    [rule] = parse_spec(text, folder=Path()).sources
    assert rule == SourceRule("*a.log", patterns=('<time> \'<level>\\ "<message>"',))


def test_the_share_that_is_not_read_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    _print(
        [
            Checked("h/a.log", 4, 3, {"text": 2, "json": 1}, [Failed(3, "empty", "")]),
            Checked("h/empty.log", 0, 0, {}, []),
        ]
    )
    shown = capsys.readouterr()
    assert "a.log" in shown.out
    assert "75.00%  text 2, json 1" in shown.out
    assert "a.log:3: empty: ''" in shown.err
    assert "4 lines, 1 not parsed (25.00 %)" in shown.err


def test_no_pattern_is_suggested_for_the_few_lines_that_are_left(make_spec: MakeSpec) -> None:
    address = b"127.0.0.1 - - [21/Sep/2026 13:59:%02d] "
    views = [address % at + b'"GET /a HTTP/1.1" 404 -' for at in range(20)]
    errors = [address % at + b"code 404, message File not found" for at in range(15)]
    [found] = check_samples(
        make_spec(), [Sample("h/access.log", IN_2026_MS, views + errors)], failed_shown=1
    )
    assert (found.read, found.advice) == (20, None)
    [alone] = check_samples(make_spec(), [Sample("h/x", IN_2026_MS, errors)], failed_shown=1)
    assert alone.advice is not None
    assert alone.advice.pattern is not None


def test_blocks_of_lines_are_suggested_that_the_pipeline_then_reads(
    make_spec: MakeSpec, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [b"Start-Date: 2026-09-21  13:59:%02d\nInstall: a\nEnd-Date: 2026-09-21  14:00:00"]
    lines = b"\n".join(runs[0] % at for at in range(9)).splitlines()
    sample = Sample("h/var/history.log", IN_2026_MS, lines)
    [before] = check_samples(make_spec(), [sample], failed_shown=0)
    _print([before])
    said = capsys.readouterr().err
    assert "--first-line 'Start-Date: '" in said
    text = said[said.index("[[") : said.index("27 lines")]
    joined = _joined(sample, BlockJoiner(b"Start-Date: "))
    [after] = check_samples(parse_spec(text, folder=Path()), [joined], failed_shown=0)
    assert (after.lines, after.read, after.advice) == (9, 9, None)


def test_for_lines_that_continue_those_before_them_joining_is_suggested(
    make_spec: MakeSpec, capsys: pytest.CaptureFixture[str]
) -> None:
    sample = Sample("h/x", IN_2026_MS, [b"2026-09-21 13:59:58 failed", b"\tat a", b"\tat b"] * 3)
    [found] = check_samples(make_spec(), [sample], failed_shown=0)
    assert found.advice == Advice(join_traces=True)
    _print([found])
    assert "with --join-traces" in capsys.readouterr().err
    [joined] = check_samples(make_spec(), [_joined(sample, TraceJoiner())], failed_shown=0)
    assert (joined.read, joined.advice) == (3, None)


def test_a_file_without_times_is_told_to_be_no_log(
    make_spec: MakeSpec, capsys: pytest.CaptureFixture[str]
) -> None:
    sample = Sample("h/x", IN_2026_MS, [b"Font directories:", b"\t/usr/share/fonts"])
    [found] = check_samples(make_spec(), [sample], failed_shown=0)
    assert found.advice == Advice()
    _print([found])
    assert "No time was found" in capsys.readouterr().err
