"""Rows per second of the Spark source and sink, beside Spark's own connector for Kafka and Parquet.

All columns of 100-byte records to the noop sink, and from Parquet to a topic; two partitions
unless said otherwise. The noop sink is what Spark itself takes for the rows of a write. The last
rows are a streaming query over a thousand records (`bench/spark_start.py`).
Profiles that show what bounds both are in [spark.md](spark.md#speed).
"""

from bench import spark_source, spark_start
from bench.bench import Bench
from bench.rows import Row
from bench.spark_source import Wanted
from tests.support.node import MillstreamNode


def run(bench: Bench) -> list[Row]:
    wanted = Wanted(rows=1_000_000 if bench.is_quick else 5_000_000, rounds=bench.rounds)
    folder = bench.path("spark")
    folder.mkdir()
    bench.say("spark: starting a session")
    session = spark_source.start_session()
    try:
        with MillstreamNode(folder / "data", "--dev") as node:
            start = spark_start.compare(session, node, folder, bench.rounds)
            measured = spark_source.run(session, node, folder, wanted)
            return [*spark_source.comparisons(measured), *start]
    finally:
        session.stop()
