"""How long a streaming query takes from its start to the end of its first batch.

    python -m bench.spark_start --rounds 5

A thousand records are in the topic; the query reads them all and ends. Ours has a process of Python
that plans the batches, which Spark starts with each query; the connector plans in the JVM.
"""

import argparse
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession

from bench.rows import Row, at_most, text_table
from bench.spark_source import make_topic, source_rows, start_session, write
from tests.support.node import MillstreamNode

RECORDS = 1000
_WARM_ROUNDS = 2


def compare(spark: SparkSession, node: MillstreamNode, folder: Path, rounds: int) -> Row:
    topic = "start"
    make_topic(node.bootstrap, topic, 2)
    servers = {"kafka.bootstrap.servers": node.bootstrap}
    write(source_rows(spark, RECORDS), "millstream", **servers, topic=topic)()
    seconds: dict[str, list[float]] = {"millstream": [], "kafka": []}
    for number in range(-_WARM_ROUNDS, rounds):
        for kind, found in seconds.items():
            checkpoint = folder / f"checkpoint-{kind}-{number}"
            took = _first_batch(spark, kind, checkpoint, **servers, subscribe=topic)
            if number >= 0:
                found.append(took)
    return Row(
        "spark",
        "from a query's start to the end of its first batch",
        "s",
        seconds["millstream"],
        seconds["kafka"],
        at_most(1.0),
        against="connector",
    )


def _first_batch(spark: SparkSession, kind: str, checkpoint: Path, **options: str) -> float:
    records = spark.readStream.format(kind).options(**options, startingOffsets="earliest").load()
    began = time.monotonic()
    query = (
        records.writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    progress = query.lastProgress
    assert progress is not None
    assert progress.numInputRows == RECORDS, progress
    return time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    spark = start_session()
    with (
        tempfile.TemporaryDirectory(prefix="millstream-bench-") as name,
        MillstreamNode(Path(name) / "data", "--dev") as node,
    ):
        print(text_table([compare(spark, node, Path(name), rounds)]))
    spark.stop()


if __name__ == "__main__":
    main()
