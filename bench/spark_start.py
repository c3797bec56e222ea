"""How long a streaming query takes from its start to the end of its first batch.

    python -m bench.spark_start --rounds 5

A thousand records are in the topic; the query reads them all and ends. For a source in Python Spark
starts a process with each query that plans its batches; the connector plans in the JVM. A source
that does nothing shows what that takes by itself. Ours is measured with `worker_python` of
`millstream.spark`, and without.
"""

import argparse
import os
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from bench.rows import Row, Target, at_most, text_table
from bench.spark_empty_source import EmptySource
from bench.spark_source import cpu_seconds_of, make_topic, source_rows, start_session, write
from millstream.spark import worker_python
from pyspark_millstream import DefaultSource
from tests.support.node import MillstreamNode

RECORDS = 1000
_WARM_ROUNDS = 2
_NAME = "from a query's start to the end of its first batch"


@dataclass
class Case:
    format: str
    # None for the connector, which is no Python.
    source: type[DataSource] | None = None
    # What Spark starts its processes with.
    python: str = sys.executable
    seconds: list[float] = field(default_factory=list)
    # Of the driver, the JVM and all processes that it started.
    cpu_seconds: list[float] = field(default_factory=list)


def compare(spark: SparkSession, node: MillstreamNode, folder: Path, rounds: int) -> list[Row]:
    topic = "start"
    make_topic(node.bootstrap, topic, 2)
    servers = {"kafka.bootstrap.servers": node.bootstrap}
    write(source_rows(spark, RECORDS), "millstream", **servers, topic=topic)()
    fast = worker_python(folder)
    ours = Case("millstream", DefaultSource, fast)
    plain = Case("millstream", DefaultSource)
    empty = Case("empty", EmptySource, fast)
    connector = Case("kafka")
    reading = {**servers, "subscribe": topic, "startingOffsets": "earliest"}
    for number in range(-_WARM_ROUNDS, rounds):
        for index, case in enumerate((ours, connector, empty, plain)):
            options = {} if case is empty else reading
            checkpoint = folder / f"checkpoint-{index}-{number}"
            _run(spark, case, checkpoint, options, counts=number >= 0)
    return [
        _row("", ours, connector, "connector", at_most(1.0)),
        _row("", ours, empty, "an empty Python source"),
        _row(", without worker_python", plain, connector, "connector"),
        _row(", an empty Python source", empty, connector, "connector"),
    ]


def _row(told: str, ours: Case, theirs: Case, against: str, target: Target | None = None) -> Row:
    return Row("spark", _NAME + told, "s", ours.seconds, theirs.seconds, target, against=against)


def _run(
    spark: SparkSession, case: Case, checkpoint: Path, options: dict[str, str], *, counts: bool
) -> None:
    if case.source is not None:
        # A source keeps the Python that its session had when it was registered.
        spark.sparkContext.pythonExec = case.python
        spark.dataSource.register(case.source)
    records = spark.readStream.format(case.format).options(**options).load()
    cpu_before = cpu_seconds_of(os.getpid())
    began = time.monotonic()
    query = (
        records.writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    seconds = time.monotonic() - began
    cpu_seconds = cpu_seconds_of(os.getpid()) - cpu_before
    progress = query.lastProgress
    assert progress is not None
    assert progress.numInputRows == RECORDS, progress
    told = f"{case.format} with {Path(case.python).name}" if case.source else case.format
    print(f"{told}: {seconds:.2f} s, {cpu_seconds:.2f} s of CPU", file=sys.stderr)
    if counts:
        case.seconds.append(seconds)
        case.cpu_seconds.append(cpu_seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    spark = start_session()
    with (
        tempfile.TemporaryDirectory(prefix="millstream-bench-") as name,
        MillstreamNode(Path(name) / "data", "--dev") as node,
    ):
        print(text_table(compare(spark, node, Path(name), rounds)))
    spark.stop()


if __name__ == "__main__":
    main()
