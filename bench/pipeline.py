"""Lines per second through the pipeline, stage by stage, beside Spark's own Kafka connector.

    python -m bench.pipeline [--lines 200000] [--rounds 3]

One session, one node, one topic of made-up web traffic. A stage is everything up to it: read,
then read and parse, then windows, into Spark's noop sink, so the difference of two stages is
the cost of the second. `stored` writes the real tables and dead letters. Both sources read the
same topic from the same node with the same trigger and state partitions. All cases run
interleaved; the first round warms up and does not count, the median of the others does.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession

from millstream.cli.output import print_table
from millstream.ingest.traffic import Site
from millstream.pipeline import queries, run, sessions, windows
from millstream.pipeline.parsing import parse_events
from millstream.pipeline.session import open_session
from millstream.pipeline.spec import Spec, parse_spec
from tests.support.node import MillstreamNode
from tests.support.spark_connector import connector_jars

TOPIC = "logs"
Stage = Callable[[DataFrame, Spec], DataFrame]

STAGES: dict[str, tuple[Stage, str]] = {
    "read": (lambda records, spec: records, "append"),
    "parsed": (parse_events, "append"),
    "live windows": (lambda r, spec: windows.live_windows(parse_events(r, spec), spec), "update"),
    "final windows": (
        lambda r, spec: windows.final_windows(parse_events(r, spec), spec),
        "append",
    ),
    "visits": (lambda r, spec: sessions.sessions(parse_events(r, spec), spec), "append"),
}


def send_lines(bootstrap: str, count: int) -> float:
    """Lines per second into the topic."""
    start_ms = time.time_ns() // 1_000_000 - 3600 * 1000
    site = Site(seed=1, start_ms=start_ms, lines_per_second=count / 1800)
    lines = list(islice(site.lines(), count))
    settings = {"bootstrap.servers": bootstrap, "linger.ms": 20, "compression.type": "lz4"}
    producer = Producer({**settings, "acks": "all"})
    began = time.monotonic()
    for number, line in enumerate(lines):
        while True:
            try:
                producer.produce(TOPIC, line.data, key=line.source, timestamp=line.time_ms)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0
    return count / (time.monotonic() - began)


def read_with_connector(spark: SparkSession, spec: Spec) -> DataFrame:
    """Spark's own source, with what ours is told."""
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", spec.bootstrap)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("kafka.isolation.level", "read_committed")
        .load()
        .select("key", "value", "topic", "partition", "offset", "timestamp")
    )


def run_stage(records: DataFrame, spec: Spec, name: str, checkpoint: Path) -> float:
    """Seconds that the batches took, without the start of the query."""
    stage, mode = STAGES[name]
    stream = stage(records, spec).writeStream.format("noop").outputMode(mode)
    query = stream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return sum(each.batchDuration for each in query.recentProgress) / 1000


def run_store(spark: SparkSession, spec: Spec) -> float:
    [store] = [query for query in queries.QUERIES if query.name == "store"]
    query = queries.start_query(spark, spec, store, queries.LineCounts(), once=True)
    query.awaitTermination()
    return sum(each.batchDuration for each in query.recentProgress) / 1000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lines", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, MillstreamNode(Path(name) / "data") as node:
        folder = Path(name)
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        [made] = admin.create_topics([NewTopic(TOPIC, 2, 1)]).values()
        made.result(20)
        sent = send_lines(node.bootstrap, options.lines)
        text = f'bootstrap = "{node.bootstrap}"\n[input]\nrecords_per_batch_max = 10000000'
        spec = parse_spec(text, folder=folder)
        jars = {"spark.jars": connector_jars()}
        spark = open_session(spec, master="local[2]", settings=jars)
        run.create_topics(spec)
        rates = measure(spark, spec, options.lines, options.rounds, folder)
        spark.stop()
    rows = [["sent", f"{sent:,.0f}", ""]]
    for stage in [*STAGES, "stored"]:
        ours, theirs = rates.get(("ours", stage)), rates.get(("connector", stage))
        cells = [f"{statistics.median(each):,.0f}" if each else "" for each in (ours, theirs)]
        rows.append([stage, *cells])
    print_table(["stage", "ours, lines/s", "connector, lines/s"], rows)


def measure(
    spark: SparkSession, spec: Spec, count: int, rounds: int, folder: Path
) -> dict[tuple[str, str], list[float]]:
    rates: dict[tuple[str, str], list[float]] = {}
    has_connector = bool(spark.conf.get("spark.jars", ""))
    for round_number in range(rounds + 1):
        for stage in STAGES:
            for source in ("ours", "connector") if has_connector else ("ours",):
                if source == "ours":
                    records = queries.read_lines(spark, spec, "bench")
                else:
                    records = read_with_connector(spark, spec)
                checkpoint = folder / f"{source}-{stage}-{round_number}"
                seconds = run_stage(records, spec, stage, checkpoint)
                if round_number:
                    rates.setdefault((source, stage), []).append(count / seconds)
        # A home of its own each time, else there would be nothing left to store.
        again = parse_spec(
            f'home = "home-{round_number}"\nname = "round-{round_number}"\n'
            f'bootstrap = "{spec.bootstrap}"\n[input]\nrecords_per_batch_max = 10000000',
            folder=folder,
        )
        run.create_topics(again)
        seconds = run_store(spark, again)
        if round_number:
            rates.setdefault(("ours", "stored"), []).append(count / seconds)
    return rates


if __name__ == "__main__":
    main()
