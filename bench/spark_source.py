"""Rows per second of the Spark source and sink, beside Spark's own connector and Parquet.

    python -m bench.spark_source [--rows 5000000] [--rounds 3] [--partitions 2]

One session, one node, one topic of 100-byte values with 12-byte keys. All cases run
interleaved, one round warms up, the median of the others counts. Every read takes all seven
columns to the noop sink. CPU is that of the JVM and of Spark's Python workers; the node's
own is told apart. The connector runs with its defaults and with larger fetches; the better
of the two is what ours is measured by.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession

from bench.rows import Row, at_least, text_table
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


@dataclass
class Case:
    name: str
    run: Callable[[], None]
    rates: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    node_seconds: list[float] = field(default_factory=list)


def cpu_seconds_of(pid: int) -> float:
    """CPU of a process and of all below it."""
    total = 0.0
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        # Own time, and that of children that have ended.
        total += sum(map(int, fields[11:15])) / _TICKS
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                total += cpu_seconds_of(int(child))
    except FileNotFoundError:
        return total
    return total


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


def source_rows(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(count, numPartitions=2).selectExpr(
        "CAST(format_string('key-%08d', id) AS BINARY) AS key",
        f"CAST(rpad(sha2(CAST(id AS STRING), 256), {VALUE_BYTES}, 'x') AS BINARY) AS value",
    )


def read(spark: SparkSession, kind: str, **options: str) -> Callable[[], None]:
    def run() -> None:
        spark.read.format(kind).options(**options).load().write.format("noop").mode(
            "overwrite"
        ).save()

    return run


def write(rows: DataFrame, kind: str, **options: str) -> Callable[[], None]:
    def run() -> None:
        rows.write.format(kind).options(**options).mode("append").save()

    return run


def read_cases(spark: SparkSession, node: MillstreamNode, topic: str, parquet: Path) -> list[Case]:
    servers = {"kafka.bootstrap.servers": node.bootstrap, "subscribe": topic}
    path = str(node.data_dir)
    return [
        Case("read, Parquet", lambda: _read_parquet(spark, parquet)),
        Case("read, millstream", read(spark, "millstream", **servers)),
        Case("read, millstream, in place", read(spark, "millstream", **servers, path=path)),
        Case("read, connector", read(spark, "kafka", **servers)),
        Case("read, connector, large fetches", read(spark, "kafka", **servers, **LARGE_FETCHES)),
    ]


def _read_parquet(spark: SparkSession, path: Path) -> None:
    spark.read.parquet(str(path)).write.format("noop").mode("overwrite").save()


def write_cases(spark: SparkSession, bootstrap: str, parquet: Path, partitions: int) -> list[Case]:
    rows = spark.read.parquet(str(parquet)).select("key", "value")
    make_topic(bootstrap, "ours", partitions)
    make_topic(bootstrap, "theirs", partitions)
    servers = {"kafka.bootstrap.servers": bootstrap}
    large = {"kafka.batch.size": str(512 << 10), "kafka.linger.ms": "5"}
    return [
        Case("write, millstream", write(rows, "millstream", **servers, topic="ours")),
        Case("write, connector", write(rows, "kafka", **servers, topic="theirs")),
        Case(
            "write, connector, large batches",
            write(rows, "kafka", **servers, topic="theirs", **large),
        ),
    ]


def measure(cases: list[Case], rows: int, rounds: int, node_pid: int) -> None:
    """Every case once per round; the first round only warms up."""
    for number in range(rounds + 1):
        for case in cases:
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
            print(f"round {number}: {case.name}: {rows / seconds:,.0f} rows/s", file=sys.stderr)


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
    ("read, millstream", "read, connector", 3.0),
    ("read, millstream", "read, connector, large fetches", 3.0),
    ("read, millstream", "read, Parquet", 0.6),
    ("read, millstream, in place", "read, Parquet", 0.8),
    ("write, millstream", "write, connector", 2.0),
    ("write, millstream", "write, connector, large batches", 2.0),
)


def comparisons(cases: list[Case]) -> list[Row]:
    rates = {case.name: case.rates for case in cases}
    return [
        Row(
            part="spark",
            name=ours,
            unit="rows/s",
            ours=rates[ours],
            theirs=rates[theirs],
            target=at_least(ratio),
            against=theirs.partition(", ")[2],
        )
        for ours, theirs, ratio in TARGETS
        if ours in rates
    ]


def run(
    spark: SparkSession, node: MillstreamNode, folder: Path, wanted: argparse.Namespace
) -> list[Case]:
    make_topic(node.bootstrap, "rows", wanted.partitions)
    options = {"kafka.bootstrap.servers": node.bootstrap, "topic": "rows"}
    write(source_rows(spark, wanted.rows), "millstream", **options)()
    parquet = folder / "parquet"
    servers = {"kafka.bootstrap.servers": node.bootstrap, "subscribe": "rows"}
    rows = spark.read.format("millstream").options(**servers).load()
    rows.write.option("compression", "zstd").parquet(str(parquet))
    cases = read_cases(spark, node, "rows", parquet)
    measure(cases, wanted.rows, wanted.rounds, node.pid)
    if not wanted.reads_only:
        writes = write_cases(spark, node.bootstrap, parquet, wanted.partitions)
        measure(writes, wanted.rows, wanted.rounds, node.pid)
        cases += writes
    return cases


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--reads-only", action="store_true")
    wanted = parser.parse_args()
    spark = start_session()
    with (
        tempfile.TemporaryDirectory(prefix="millstream-bench-") as folder,
        MillstreamNode(Path(folder) / "data", "--dev") as node,
    ):
        cases = run(spark, node, Path(folder), wanted)
    for case in cases:
        print(json.dumps({"partitions": wanted.partitions, **summary(case)}))
    print(text_table(comparisons(cases)))
    spark.stop()


if __name__ == "__main__":
    main()
