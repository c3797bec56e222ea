"""Loghub's sixteen data sets: the share of parsed lines, and how well templates group them.

    python -m bench.templates DIR [--drain3 PYTHON]

DIR is a copy of loghub's repository, with a sample of 2,000 lines of each set and the labels
that people gave them. Lines are parsed by their format alone, and by a pattern for each set.
Grouping accuracy is the share of messages in groups that are exactly as labelled: a group with
one message too many or too few counts as wrong with all of its messages. The settings are
the same for every set. PYTHON is an interpreter that has drain3, with its default settings.
"""

import argparse
import csv
import json
import subprocess
import time
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from millstream.lines.parser import LineParser
from millstream.lines.rules import LineRules, SourceRule
from millstream.lines.templates import Templates

# For dates without a year, which are then of this one.
RECORD_TIME_US = 1_789_999_200_000_000
_SYSLOG = "<time:%b %e %H:%M:%S> <host> "
_LABELLED = "<label> <time:%s> <_> <host> "
PATTERNS: dict[str, tuple[str, ...]] = {
    "Android": ("<time:%m-%d %H:%M:%S.%f> <pid> <tid> <level> <tag>: <message>",),
    "Apache": ("[<time:%a %b %d %H:%M:%S %Y>] [<level>] <message>",),
    "BGL": (f"{_LABELLED}<_> <_> <_> <component> <level> <message>",),
    "HDFS": ("<time:%y%m%d %H%M%S> <pid> <level> <component>: <message>",),
    "HPC": ("<id> <host> <component> <state> <time:%s> <flag> <message>",),
    "Hadoop": ("<time> <level> [<thread...>] <component>: <message>",),
    "HealthApp": ("<time:%Y%m%d-%H:%M:%S:%f>|<component>|<pid>|<message>",),
    "Linux": (f"{_SYSLOG}<program>[<pid>]: <message>", f"{_SYSLOG}<program...>: <message>"),
    "Mac": (f"{_SYSLOG}<program...>[<pid>]<_...>: <message>", f"{_SYSLOG}<message>"),
    "OpenSSH": (f"{_SYSLOG}<program>[<pid>]: <message>",),
    "OpenStack": ("<_> <time> <pid> <level> <component> [<request...>] <message>",),
    "Proxifier": ("[<time:%m.%d %H:%M:%S>] <program...> - <message>",),
    "Spark": ("<time:%y/%m/%d %H:%M:%S> <level> <component>: <message>",),
    "Thunderbird": (
        f"{_LABELLED}<_> <_> <_> <_> <program>[<pid>]: <message>",
        f"{_LABELLED}<_> <_> <_> <_> <program>: <message>",
        f"{_LABELLED}<_> <_> <_> <_> <message>",
    ),
    "Windows": ("<time>, <level> <component> <message>",),
    "Zookeeper": ("<time> - <level> [<node...>@<line>] - <message>",),
}

# Reads messages by set and prints the numbers of their groups by set, both as JSON.
_DRAIN3 = """
import json, logging, sys
from drain3 import TemplateMiner
logging.disable(logging.WARNING)
found = {}
for name, messages in json.load(sys.stdin).items():
    miner = TemplateMiner()
    found[name] = [miner.add_log_message(message)["cluster_id"] for message in messages]
json.dump(found, sys.stdout)
"""


@dataclass(frozen=True, slots=True)
class DataSet:
    name: str
    lines: list[bytes]
    # As the labels have them: the message of each line, and its group.
    messages: list[str]
    groups: list[str]


def read_sets(folder: Path) -> list[DataSet]:
    found = []
    for path in sorted(folder.glob("*/*_2k.log")):
        with path.with_name(path.name + "_structured.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        found.append(
            DataSet(
                name=path.parent.name,
                lines=[line for line in path.read_bytes().split(b"\n") if line],
                messages=[row["Content"] for row in rows],
                groups=[row["EventId"] for row in rows],
            )
        )
    return found


def grouping_accuracy(found: Sequence[Hashable], expected: Sequence[Hashable]) -> float:
    """The share of messages whose group is exactly one of the expected ones."""
    groups = {tuple(rows) for rows in _rows_of(expected).values()}
    right = sum(len(rows) for rows in _rows_of(found).values() if tuple(rows) in groups)
    return right / len(found) if found else 1.0


def _rows_of(numbers: Sequence[Hashable]) -> dict[Hashable, list[int]]:
    rows: dict[Hashable, list[int]] = defaultdict(list)
    for row, number in enumerate(numbers):
        rows[number].append(row)
    return rows


def parsed_share(lines: Sequence[bytes], patterns: tuple[str, ...]) -> float:
    """Of lines that tell their format, or by patterns."""
    sources = (SourceRule("*", patterns=patterns),) if patterns else ()
    rules = LineRules(
        sources=sources, timezone="UTC", mask=(), salt="", gauges=(), ahead_ms=0, late_ms=0
    )
    details = LineParser(rules, ["detail"]).parse(_records(lines)).column("detail")
    parsed: int = details.null_count
    return parsed / len(lines)


def _records(lines: Sequence[bytes]) -> pa.RecordBatch:
    count = len(lines)
    time_type = pa.timestamp("us", tz="UTC")
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([b"h/x"] * count, pa.binary()),
            "value": pa.array(lines, pa.binary()),
            "topic": pa.array(["x"] * count, pa.string()),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "timestamp": pa.array([RECORD_TIME_US] * count, time_type),
        }
    )


def group(messages: Sequence[str]) -> list[int]:
    numbers: list[int] = Templates().add(pa.array(messages, pa.string())).tolist()
    return numbers


def group_by_drain3(python: str, sets: Sequence[DataSet]) -> dict[str, list[int]]:
    done = subprocess.run(
        [python, "-c", _DRAIN3],
        input=json.dumps({each.name: each.messages for each in sets}),
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, list[int]] = json.loads(done.stdout)
    return found


def table(sets: Sequence[DataSet], drain3: dict[str, list[int]]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    sums = [0.0, 0.0]
    for each in sets:
        ours = grouping_accuracy(group(each.messages), each.groups)
        theirs = grouping_accuracy(drain3.get(each.name, []), each.groups)
        sums = [sums[0] + ours, sums[1] + theirs]
        rows.append(
            (
                each.name,
                f"{100 * parsed_share(each.lines, ()):.1f} %",
                f"{100 * parsed_share(each.lines, PATTERNS[each.name]):.1f} %",
                f"{ours:.3f}",
                f"{theirs:.3f}" if drain3 else "-",
            )
        )
    means = [f"{total / len(sets):.3f}" for total in sums]
    rows.append(("mean", "", "", means[0], means[1] if drain3 else "-"))
    return rows


def messages_per_second(sets: Sequence[DataSet]) -> float:
    messages = pa.array([message for each in sets for message in each.messages] * 10, pa.string())
    templates = Templates()
    begin = time.perf_counter()
    templates.add(messages)
    return len(messages) / (time.perf_counter() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="a copy of loghub's repository")
    parser.add_argument("--drain3", metavar="PYTHON", help="an interpreter that has drain3")
    arguments = parser.parse_args()
    sets = read_sets(arguments.folder)
    if not sets:
        parser.error(f"{arguments.folder} has no */*_2k.log; give a copy of loghub's repository")
    drain3 = group_by_drain3(arguments.drain3, sets) if arguments.drain3 else {}
    header = ("set", "parsed by format", "by pattern", "grouping accuracy", "drain3")
    for row in (header, ("---",) * len(header), *table(sets, drain3)):
        print(f"| {' | '.join(row)} |")
    print(f"{messages_per_second(sets):,.0f} messages a second, all sets through one tree")


if __name__ == "__main__":
    main()
