"""Rows per second of the Spark source and sink, beside Spark's own connector and Parquet.

    python -m bench.spark_source [--rows 5000000] [--rounds 3]

One session, one node, topics of 100-byte values with 12-byte keys. Two partitions are measured
in full; one and four against the connector's better setting. All cases of a topic run
interleaved, two rounds warm up, the median of the others counts. Every read takes all seven
columns to the noop sink; the same rows from Parquet to the noop sink are what a write costs
without any sink. CPU is that of the JVM and of Spark's Python workers; the node's own is told
apart. The connector runs with its defaults and with larger fetches and batches.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession

from bench.rows import Row, Target, at_least, text_table
from tests.support.node import MillstreamNode
from tests.support.spark_connector import connector_jars

VALUE_BYTES = 100
_TICKS = os.sysconf("SC_CLK_TCK")
# What the connector's documentation and its users recommend for throughput.
LARGE_FETCHES = {
    "kafka.max.partition.fetch.bytes": str(16 << 20),
    "kafka.fetch.max.bytes": str(64 << 20),
    "kafka.max.poll.records": "100000",
    "kafka.receive.buffer.bytes": str(4 << 20),
}
LARGE_BATCHES = {"kafka.batch.size": str(512 << 10), "kafka.linger.ms": "5"}
# Java compiles the better code of a case in its second run.
WARM_ROUNDS = 2
# The first is measured in full.
PARTITIONS = (2, 1, 4)
READ, READ_IN_PLACE = "read, millstream", "read, millstream, in place"
READ_PARQUET = "read, Parquet"
READ_CONNECTOR, READ_LARGE = "read, connector", "read, connector, large fetches"
WRITE, WRITE_NOOP = "write, millstream", "write, noop sink"
WRITE_CONNECTOR, WRITE_LARGE = "write, connector", "write, connector, large batches"


@dataclass
class Case:
    name: str
    run: Callable[[], None]
    rates: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    node_seconds: list[float] = field(default_factory=list)

    @property
    def all_seconds(self) -> list[float]:
        return [sum(pair) for pair in zip(self.cpu_seconds, self.node_seconds, strict=True)]


@dataclass(frozen=True)
class Wanted:
    rows: int
    rounds: int


# By number of partitions, then by name.
Measured = dict[int, dict[str, Case]]


def cpu_seconds_of(pid: int) -> float:
    """CPU of a process and of all below it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        # It has ended.
        return 0.0
    # Own time, and that of children that have ended.
    own = sum(map(int, fields[11:15])) / _TICKS
    return own + sum(map(cpu_seconds_of, children_of(pid)))


def children_of(pid: int, processes: Path = Path("/proc")) -> list[int]:
    """The processes that any of its threads started; none if it has ended."""
    found: list[int] = []
    try:
        for task in (processes / str(pid) / "task").iterdir():
            # Java's threads come and go; one that is gone must not hide the others' children.
            with suppress(FileNotFoundError, ProcessLookupError):
                found += map(int, (task / "children").read_text().split())
    except (FileNotFoundError, ProcessLookupError):
        return found
    return found


def start_session() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "3g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.jars", connector_jars())
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )


def make_topic(bootstrap: str, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(20)


def delete_topics(bootstrap: str, names: list[str]) -> None:
    """Gigabytes that are not read any more."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.delete_topics(names).values():
        done.result(20)


def source_rows(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(count, numPartitions=2).selectExpr(
        "CAST(format_string('key-%08d', id) AS BINARY) AS key",
        f"CAST(rpad(sha2(CAST(id AS STRING), 256), {VALUE_BYTES}, 'x') AS BINARY) AS value",
    )


def read(spark: SparkSession, kind: str, **options: str) -> Callable[[], None]:
    def run() -> None:
        _to_noop(spark.read.format(kind).options(**options).load())

    return run


def write(rows: DataFrame, kind: str, **options: str) -> Callable[[], None]:
    def run() -> None:
        rows.write.format(kind).options(**options).mode("append").save()

    return run


def read_cases(spark: SparkSession, node: MillstreamNode, topic: str, parquet: Path) -> list[Case]:
    servers = {"kafka.bootstrap.servers": node.bootstrap, "subscribe": topic}
    path = str(node.data_dir)
    return [
        Case(READ_PARQUET, lambda: _to_noop(spark.read.parquet(str(parquet)))),
        Case(READ, read(spark, "millstream", **servers)),
        Case(READ_IN_PLACE, read(spark, "millstream", **servers, path=path)),
        Case(READ_CONNECTOR, read(spark, "kafka", **servers)),
        Case(READ_LARGE, read(spark, "kafka", **servers, **LARGE_FETCHES)),
    ]


def _to_noop(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def write_cases(rows: DataFrame, bootstrap: str, ours: str, theirs: str) -> list[Case]:
    """To one topic each, so that both find theirs as it was left."""
    servers = {"kafka.bootstrap.servers": bootstrap}
    return [
        Case(WRITE_NOOP, lambda: _to_noop(rows)),
        Case(WRITE, write(rows, "millstream", **servers, topic=ours)),
        Case(WRITE_CONNECTOR, write(rows, "kafka", **servers, topic=theirs)),
        Case(WRITE_LARGE, write(rows, "kafka", **servers, topic=theirs, **LARGE_BATCHES)),
    ]


def measure(cases: list[Case], partitions: int, wanted: Wanted, node_pid: int) -> None:
    """Every case once per round; the first rounds only warm up."""
    rows = wanted.rows
    for number in range(1 - WARM_ROUNDS, wanted.rounds + 1):
        for case in cases:
            # What a round before has written is not this one's to pay for.
            os.sync()
            node_before = cpu_seconds_of(node_pid)
            cpu_before = cpu_seconds_of(os.getpid())
            started = time.monotonic()
            case.run()
            seconds = time.monotonic() - started
            node_used = cpu_seconds_of(node_pid) - node_before
            if number > 0:
                case.rates.append(rows / seconds)
                used = cpu_seconds_of(os.getpid()) - cpu_before - node_used
                case.cpu_seconds.append(used * 1e6 / rows)
                case.node_seconds.append(node_used * 1e6 / rows)
            told = f"{partitions} partitions, round {number}: {case.name}"
            print(f"{told}: {rows / seconds:,.0f} rows/s", file=sys.stderr)


def summary(case: Case) -> dict[str, object]:
    return {
        "case": case.name,
        "rows_per_second": round(statistics.median(case.rates)),
        "slowest": round(min(case.rates)),
        "fastest": round(max(case.rates)),
        "cpu_seconds_per_million": round(statistics.median(case.cpu_seconds), 3),
        "node_seconds_per_million": round(statistics.median(case.node_seconds), 3),
    }


# Ours, what it is measured by, and the ratio of rows per second that is aimed at.
TARGETS = (
    (READ, READ_CONNECTOR, 3.0),
    (READ, READ_LARGE, 2.0),
    (READ, READ_PARQUET, 0.6),
    (READ_IN_PLACE, READ_PARQUET, 0.8),
    (WRITE, WRITE_CONNECTOR, 2.0),
    (WRITE, WRITE_LARGE, 2.0),
)
# What only informs: CPU, the floor of a write, and other numbers of partitions.
CPU_PAIRS = ((READ, READ_LARGE), (READ, READ_PARQUET), (WRITE, WRITE_LARGE), (WRITE, WRITE_NOOP))
OTHER_PAIRS = ((READ, READ_LARGE), (WRITE, WRITE_LARGE))
_OTHER_NAMES = {name for pair in OTHER_PAIRS for name in pair}


def comparisons(measured: Measured) -> list[Row]:
    first, *others = measured
    cases = measured[first]
    rows = [_rates(cases, ours, theirs, at_least(ratio)) for ours, theirs, ratio in TARGETS]
    rows.append(_rates(cases, WRITE, WRITE_NOOP))
    for ours, theirs in CPU_PAIRS:
        unit = "CPU s per million rows"
        values = cases[ours].all_seconds, cases[theirs].all_seconds
        rows.append(Row("spark", _named(ours), unit, *values, against=_against(theirs)))
    for count in others:
        told = "1 partition" if count == 1 else f"{count} partitions"
        rows += [_rates(measured[count], *pair, told=f", {told}") for pair in OTHER_PAIRS]
    return rows


def _rates(
    cases: dict[str, Case], ours: str, theirs: str, target: Target | None = None, told: str = ""
) -> Row:
    return Row(
        part="spark",
        name=_named(ours) + told,
        unit="rows/s",
        ours=cases[ours].rates,
        theirs=cases[theirs].rates,
        target=target,
        against=_against(theirs),
    )


def _named(ours: str) -> str:
    return ours.replace(", millstream", "")


def _against(theirs: str) -> str:
    """Without whether it reads or writes."""
    return theirs.partition(", ")[2]


def run(spark: SparkSession, node: MillstreamNode, folder: Path, wanted: Wanted) -> Measured:
    parquet = folder / "parquet"
    measured: Measured = {}
    rows = source_rows(spark, wanted.rows)
    for count in PARTITIONS:
        is_full = count == PARTITIONS[0]
        topics = [f"{name}-{count}" for name in ("rows", "ours", "theirs")]
        for topic in topics:
            make_topic(node.bootstrap, topic, count)
        servers = {"kafka.bootstrap.servers": node.bootstrap}
        write(rows, "millstream", **servers, topic=topics[0])()
        if is_full:
            table = spark.read.format("millstream").options(**servers, subscribe=topics[0]).load()
            table.write.option("compression", "zstd").parquet(str(parquet))
            # Cheaper to make than the first time.
            rows = spark.read.parquet(str(parquet)).select("key", "value")
        cases: list[Case] = []
        for group in (
            read_cases(spark, node, topics[0], parquet),
            write_cases(rows, node.bootstrap, topics[1], topics[2]),
        ):
            chosen = [case for case in group if is_full or case.name in _OTHER_NAMES]
            measure(chosen, count, wanted, node.pid)
            cases += chosen
        measured[count] = {case.name: case for case in cases}
        delete_topics(node.bootstrap, topics)
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    wanted = Wanted(**vars(parser.parse_args()))
    spark = start_session()
    with (
        tempfile.TemporaryDirectory(prefix="millstream-bench-") as folder,
        MillstreamNode(Path(folder) / "data", "--dev") as node,
    ):
        measured = run(spark, node, Path(folder), wanted)
    for count, cases in measured.items():
        for case in cases.values():
            print(json.dumps({"partitions": count, **summary(case)}))
    print(text_table(comparisons(measured)))
    spark.stop()


if __name__ == "__main__":
    main()
