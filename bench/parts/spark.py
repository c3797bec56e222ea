"""Rows per second of the Spark source and sink, beside Spark's own connector for Kafka.

`python -m bench.spark_source` shows CPU and Parquet as well.
"""

import argparse

from bench import spark_source
from bench.bench import Bench
from bench.rows import Row
from bench.spark_source import Case
from tests.support.node import MillstreamNode

PART = "spark"


def run(bench: Bench) -> list[Row]:
    wanted = argparse.Namespace(
        rows=1_000_000 if bench.is_quick else 5_000_000,
        rounds=bench.rounds,
        partitions=2,
        reads_only=False,
    )
    folder = bench.path("spark")
    folder.mkdir()
    bench.say("spark: starting a session")
    session = spark_source.start_session()
    try:
        with MillstreamNode(folder / "data", "--dev") as node:
            cases = {case.name: case for case in spark_source.run(session, node, folder, wanted)}
    finally:
        session.stop()
    return [
        _row(cases, "read", "read, connector", "read, connector, large fetches"),
        _row(cases, "write", "write, connector", "write, connector, large batches"),
    ]


def _row(cases: dict[str, Case], what: str, *connector: str) -> Row:
    """Ours against the faster of the connector's two settings."""
    best = max((cases[name].rates for name in connector), key=sum)
    ours = cases[f"{what}, millstream"].rates
    return Row(PART, what, "rows/s", ours, best, None, "Spark's connector")
