"""docs/benchmarks.md, written from the rows of a run. Pure but for the plots' file names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.rows import HEADINGS, KAFKA, Row, cells

_TITLE = "# Benchmarks: Millstream beside Apache Kafka"
# More of what is counted by the second is better; of everything else, such as seconds, less is.
_RATE = "/s"
# Closer to each other than rounds are.
_EVEN = 1.05

_INTRODUCTION = """# Benchmarks: Millstream beside Apache Kafka

Written by the command below; do not edit. Where the time goes, and what was changed because of it,
is in [performance.md](performance.md).

{when}, {machine}. Apache Kafka {kafka_version} from Maven Central: KRaft, one combined node, the
settings of its own `server.properties`, the heap and collector flags of its own scripts. Java
{java_version}. Both brokers run side by side on the same disk for the whole run; the JVM is warmed
first, rounds alternate ({rounds}), and the file system is synced between them. Figures are medians
with the whole spread in brackets; the ratio is ours to theirs, with the spread of neighbouring
rounds. A row whose right-hand figure carries a name is measured against that, not against Kafka.
`{command}` repeats all of it; a part alone: `make bench ARGS="NAME"`.

Loads: *raw* replays frames built once from a C client of one thread that drops the answers
(`bench/native/replay.c`), so that the client hides no broker; *Java* is Kafka's ProducerPerformance
and ConsumerPerformance; *kcat* is librdkafka. Raw batches are 16 KB, Java's default, where the
name does not say 1 MB, librdkafka's. Our node runs with `--dev` (acks=all answers from the page
cache, as Kafka's does) except where it says *synced*.
"""


@dataclass(frozen=True, slots=True)
class Conditions:
    when: str
    machine: str
    kafka_version: str
    java_version: str
    rounds: str
    command: str


def markdown(
    rows: Sequence[Row], conditions: Conditions, plots: Mapping[str, str], titles: Mapping[str, str]
) -> str:
    """The page; `plots` are file names by part, `titles` what each part says of itself."""
    lines = [
        _INTRODUCTION.format(
            when=conditions.when,
            machine=conditions.machine,
            kafka_version=conditions.kafka_version,
            java_version=conditions.java_version,
            rounds=conditions.rounds,
            command=conditions.command,
        )
    ]
    lines[0] = lines[0].replace(_TITLE, f"{_TITLE}\n\n{overview(rows)}", 1)
    lines.append(summary(rows))
    for part in dict.fromkeys(row.part for row in rows):
        lines += ["", f"## {part}", "", titles[part], "", f'`make bench ARGS="{part}"`', ""]
        lines += [_line(HEADINGS), "|---|---:|---:|---:|---|---|"]
        lines += [_line(cells(row)) for row in rows if row.part == part]
        if part in plots:
            lines += ["", f"![{part}]({plots[part]})"]
    return "\n".join(lines) + "\n"


def overview(rows: Sequence[Row]) -> str:
    """A small table for those who read nothing else: what is ahead of Kafka, and what is not."""
    lines = [_line(["part", "ahead of Kafka", "even", "behind"]), "|---|---|---|---|"]
    for part in dict.fromkeys(row.part for row in rows):
        found = [(row.name, times) for row in rows if row.part == part and (times := _times(row))]
        if not found:
            continue
        ahead = [times for _, times in found if times > _EVEN]
        even = [name for name, times in found if 1 / _EVEN <= times <= _EVEN]
        behind = [f"{name} ({times:.2f})" for name, times in found if times < 1 / _EVEN]
        best = f"{len(ahead)} of {len(found)}, up to {max(ahead):.1f} times" if ahead else "-"
        lines.append(_line([part, best, "; ".join(even) or "-", "; ".join(behind) or "-"]))
    return "\n".join(lines)


def _times(row: Row) -> float | None:
    """How many times as good as Kafka; None where the row compares with something else."""
    if row.against != KAFKA or not row.ratio:
        return None
    return row.ratio if row.unit.endswith(_RATE) else 1 / row.ratio


def summary(rows: Sequence[Row]) -> str:
    judged = [row for row in rows if row.verdict]
    met = sum(row.verdict == "pass" for row in judged)
    missed = ", ".join(f"{row.part}: {row.name}" for row in judged if row.verdict != "pass")
    text = f"**{met} of {len(judged)} targets met.**"
    return text if not missed else f"{text} Missed: {missed}."


def _line(columns: Sequence[str]) -> str:
    return "| " + " | ".join(columns) + " |"
