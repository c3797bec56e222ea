"""Which lines of a sample a pipeline can parse, with the pipeline's own parser.

`ahead` and `late` do not apply: the files may be of any age.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from millstream.ingest.lines import Line
from millstream.ingest.traces import TraceJoiner
from millstream.lines.layouts import FAULTS
from millstream.lines.parser import LineParser
from millstream.lines.suggesting import suggest_pattern
from millstream.lines.suggesting_blocks import has_times, suggest_blocks
from millstream.pipeline.parsing import line_rules
from millstream.pipeline.spec import Spec

_SHOWN_BYTES: Final = 160
_BATCH_LINES: Final = 1000
_COLUMNS: Final = ("format", "detail")


@dataclass(frozen=True, slots=True)
class Sample:
    """Lines of one source, and the time that dates without a year are near to."""

    source: str
    time_ms: int
    lines: Sequence[bytes]
    # Where in the file each begins, from 1; empty if they follow each other.
    numbers: Sequence[int] = ()

    def number(self, index: int) -> int:
        return self.numbers[index] if self.numbers else index + 1


@dataclass(frozen=True, slots=True)
class Failed:
    # From 1, of the file.
    line: int
    detail: str
    text: str


@dataclass(frozen=True, slots=True)
class Checked:
    source: str
    lines: int
    read: int
    # How many of the parsed lines are of each format.
    formats: dict[str, int]
    # The first that could not be parsed.
    failed: list[Failed]
    # What would read most of those; None if it is not known, or most lines need nothing.
    advice: "Advice | None" = None


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do about lines that are not read; all of it empty if they have no time."""

    pattern: str | None = None
    # With it a block of lines begins that is one record; the pattern is for such records.
    first_line: str | None = None
    # They belong to the lines before them, as a stack trace does.
    join_traces: bool = False


def check_samples(spec: Spec, samples: Sequence[Sample], *, failed_shown: int) -> list[Checked]:
    parser = LineParser(line_rules(spec), _COLUMNS)
    return [_check(parser, sample, failed_shown) for sample in samples]


def _check(parser: LineParser, sample: Sample, failed_shown: int) -> Checked:
    formats: Counter[str] = Counter()
    failed: list[Failed] = []
    # Those that a pattern might read.
    unread: list[bytes] = []
    for begin in range(0, len(sample.lines), _BATCH_LINES):
        events = parser.parse(_records(sample, begin))
        names, details = (events.column(name).to_pylist() for name in _COLUMNS)
        for at, (name, detail) in enumerate(zip(names, details, strict=True)):
            if detail is None:
                formats[name] += 1
                continue
            if detail not in FAULTS:
                unread.append(sample.lines[begin + at])
            if len(failed) < failed_shown:
                shown = sample.lines[begin + at][:_SHOWN_BYTES].decode(errors="replace")
                failed.append(Failed(sample.number(begin + at), detail, shown))
    return Checked(
        source=sample.source,
        lines=len(sample.lines),
        read=formats.total(),
        formats=dict(formats.most_common()),
        failed=failed,
        advice=_advice(sample, unread),
    )


def _advice(sample: Sample, unread: Sequence[bytes]) -> Advice | None:
    if 2 * _continuing(sample.lines) >= len(unread) > 0 and len(unread) < len(sample.lines):
        return Advice(join_traces=True)
    # A pattern is for all lines of a source, and would take more from those that are parsed.
    if 2 * len(unread) <= len(sample.lines):
        return None
    record_us = sample.time_ms * 1000
    if (blocks := suggest_blocks(sample.lines, record_us=record_us)) is not None:
        return Advice(pattern=blocks.pattern, first_line=blocks.first_line)
    if (suggestion := suggest_pattern(unread, record_us=record_us)) is not None:
        return Advice(pattern=suggestion.pattern)
    return None if has_times(unread) else Advice()


def _continuing(lines: Sequence[bytes]) -> int:
    """How many would become part of the line before them."""
    joiner = TraceJoiner()
    joined = joiner.join(Line(data, 0) for data in lines)
    return len(lines) - len(joined) - len(joiner.flush())


def _records(sample: Sample, begin: int) -> pa.RecordBatch:
    """In the form in which they come from a topic."""
    lines = sample.lines[begin : begin + _BATCH_LINES]
    count = len(lines)
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([sample.source.encode()] * count, pa.binary()),
            "value": pa.array(lines, pa.binary()),
            "topic": pa.array(["sample"] * count, pa.string()),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(begin, begin + count), pa.int64()),
            "timestamp": pa.array([sample.time_ms * 1000] * count, pa.timestamp("us", tz="UTC")),
        }
    )
