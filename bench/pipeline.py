"""The pipeline on a broker and a source: runs of it, stages of it, and how soon windows are seen.

Three feeds write the same results, with the same settings, in the same session. `millstream` reads
from our node by our source, which runs the one pass over the lines where it reads them. `kafka`
reads from Apache Kafka by Spark's own connector, and has the same pass run by Python workers that
Spark hands the lines to. `operators` reads like that, and leaves windows and visits to Spark's own
operators. Results go back to the broker that the lines came from.

A stage is everything up to it, so the difference of two stages is what the second costs. The table
in `bench/parts/pipeline.py` says what is made of it.
"""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bench.spark_queries import start_results
from millstream.ingest.traffic import Site, TrafficLine
from millstream.pipeline import outputs, queries, run
from millstream.pipeline.line_pass import REPORT, LinePass, sink_options
from millstream.pipeline.line_source import read_lines
from millstream.pipeline.parsing import RECORD_COLUMNS
from millstream.pipeline.progress import Watched
from millstream.pipeline.queries import BACKFILL, LINES
from millstream.pipeline.spark_session import open_session
from millstream.pipeline.spec import Spec, parse_spec
from millstream.pipeline.window_totals import INPUT
from tests.support.spark_connector import connector_jars

STATE_PARTITIONS: Final = 2
HEAP: Final = "2g"
_STATE_STORE: Final = "spark.sql.streaming.stateStore"
_ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_SECONDS_MAX: Final = 300.0
_QUIET_SECONDS: Final = 12.0


@dataclass(frozen=True, slots=True)
class Query:
    """At work, and how many lines it has taken."""

    running: StreamingQuery
    taken: Callable[[], int]


@dataclass(frozen=True, slots=True)
class Feed:
    """Where lines come from, and by which source."""

    name: str
    bootstrap: str
    # Rows of records; and what the one pass over them reports.
    read: Callable[[SparkSession, Spec], DataFrame]
    report: Callable[[SparkSession, Spec, str], DataFrame]
    # Whether Spark's own operators make the results.
    by_operators: bool = False

    def start(
        self, spark: SparkSession, spec: Spec, name: str = LINES, *, once: bool = False
    ) -> list[Query]:
        """As the pipeline starts its query; `name` may be that of a backfill: without results."""
        found: list[Query] = []
        if self.by_operators and name == LINES:
            for each in start_results(self.read(spark, spec), spec):
                found.append(Query(each, lambda each=each: _rows_taken(each)))  # type: ignore[misc]
            name = BACKFILL
        watched = Watched()
        reports = self.report(spark, spec, name)
        query = queries.start_on(reports, spec, name, watched, once=once)
        return [*found, Query(query, lambda: watched.get().lines.total())]


def _rows_taken(query: StreamingQuery) -> int:
    return sum(json.loads(each.json)["numInputRows"] for each in query.recentProgress)


def read_by_source(spark: SparkSession, spec: Spec) -> DataFrame:
    return spark.readStream.format("millstream").options(**queries.read_options(spec, LINES)).load()


def report_by_source(spark: SparkSession, spec: Spec, name: str) -> DataFrame:
    rules = queries.pass_rules(spec, name).to_json()
    return read_lines(spark, queries.read_options(spec, name), rules)


def read_by_connector(spark: SparkSession, spec: Spec) -> DataFrame:
    """Spark's own source, with the same options as ours."""
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", spec.bootstrap)
        .option("subscribe", ",".join(spec.topics))
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(spec.records_per_batch_max))
        .option("kafka.isolation.level", "read_committed")
        .load()
        .select(*RECORD_COLUMNS)
    )


def report_by_connector(spark: SparkSession, spec: Spec, name: str) -> DataFrame:
    done = LinePass(queries.pass_rules(spec, name), sink_options(spec.bootstrap))
    return read_by_connector(spark, spec).mapInArrow(done.run, REPORT)


def start_session(folder: Path, master: str) -> SparkSession:
    settings = {
        "spark.jars": connector_jars(),
        "spark.driver.memory": HEAP,
        # For Spark's own operators: on disk, and what changed instead of a copy at every commit.
        f"{_STATE_STORE}.providerClass": _ROCKSDB,
        f"{_STATE_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
    }
    spec = parse_spec(f"state_partitions = {STATE_PARTITIONS}", folder=folder)
    return open_session(spec, master=master, settings=settings)


def make_spec(
    feed: Feed, folder: Path, topic: str, name: str, *, trigger: str = "5 seconds"
) -> Spec:
    text = (
        f'name = "{name}"\nhome = "{name}"\nbootstrap = "{feed.bootstrap}"\n'
        f'trigger = "{trigger}"\nstate_partitions = {STATE_PARTITIONS}\n'
        f'[input]\ntopics = ["{topic}"]\nrecords_per_batch_max = 10000000\n'
    )
    return parse_spec(text, folder=folder)


# -- lines -----------------------------------------------------------------------------------


def make_lines(count: int) -> list[TrafficLine]:
    """Half an hour of traffic."""
    start_ms = time.time_ns() // 1_000_000 - 3600 * 1000
    return list(
        islice(Site(seed=1, start_ms=start_ms, lines_per_second=count / 1800).lines(), count)
    )


def send_lines(feed: Feed, topic: str, lines: list[TrafficLine]) -> float:
    """Seconds until all are acknowledged."""
    settings = {"bootstrap.servers": feed.bootstrap, "linger.ms": 20, "compression.type": "lz4"}
    producer = Producer({**settings, "acks": "all", "queue.buffering.max.messages": 2_000_000})
    began = time.monotonic()
    for line in lines:
        producer.produce(topic, line.data, key=line.source, timestamp=line.time_ms)
    assert producer.flush(60) == 0
    return time.monotonic() - began


# -- stages ----------------------------------------------------------------------------------

READ: Final = "read"
TABLES: Final = "tables"
RESULTS: Final = "results"
# All that is done up to each, in this order.
STAGES: Final = (READ, TABLES, RESULTS)


def run_stage(spark: SparkSession, feed: Feed, spec: Spec, name: str) -> float:
    """Seconds that the batches took, without the start of the query."""
    if name == READ:
        writer = feed.read(spark, spec).writeStream.format("noop").trigger(availableNow=True)
        folder = str(queries.checkpoint(spec, READ).absolute())
        return seconds_of([writer.option("checkpointLocation", folder).start()])
    query = LINES if name == RESULTS else BACKFILL
    return seconds_of([each.running for each in feed.start(spark, spec, query, once=True)])


def seconds_of(running: list[StreamingQuery]) -> float:
    """Wait for the queries; the sum of what their batches took."""
    return sum(int(each["batchDuration"]) for each in reports_of(running)) / 1000


def reports_of(running: list[StreamingQuery]) -> list[dict[str, Any]]:
    """Spark's progress reports, when all queries have ended."""
    for query in running:
        assert query.awaitTermination(int(_SECONDS_MAX)), f"{query.name} does not end"
    return [json.loads(each.json) for query in running for each in query.recentProgress]


# -- the whole pipeline ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Whole:
    """One run of all queries, over lines sent meanwhile."""

    lines: int
    seconds: float
    # Of all queries together, by Spark's names for what a batch does.
    duration_ms: dict[str, int] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        return self.lines / self.seconds

    def share(self, *names: str) -> float:
        """Percent of the time of batches."""
        total = self.duration_ms["triggerExecution"]
        return 100 * sum(self.duration_ms.get(name, 0) for name in names) / total


def run_whole(
    spark: SparkSession, feed: Feed, spec: Spec, lines: list[TrafficLine], first: list[TrafficLine]
) -> Whole:
    """All queries are at work, on `first`, when the lines are sent; until each has taken all."""
    run.create_topics(spec)
    [topic] = spec.topics
    send_lines(feed, topic, first)
    running = feed.start(spark, spec)
    try:
        _wait_for(running, len(first))
        began = time.monotonic()
        send_lines(feed, topic, lines)
        reports = _wait_for(running, len(first) + len(lines))
        seconds = time.monotonic() - began
    finally:
        for query in running:
            query.running.stop()
    durations: dict[str, int] = {}
    for report in reports:
        for name, value in report["durationMs"].items():
            durations[name] = durations.get(name, 0) + value
    return Whole(len(lines), seconds, durations)


def _wait_for(running: list[Query], count: int) -> list[dict[str, Any]]:
    """Until every query has taken so many lines; their progress reports."""
    deadline = time.monotonic() + _SECONDS_MAX
    while True:
        taken = [query.taken() for query in running]
        if min(taken) >= count:
            return [
                json.loads(each.json) for query in running for each in query.running.recentProgress
            ]
        failed = [each.running.exception() for each in running if not each.running.isActive]
        assert not failed, failed
        assert time.monotonic() < deadline, f"{taken} of {count} lines taken"
        time.sleep(0.1)


# -- how soon a line is seen -----------------------------------------------------------------


class Watcher(threading.Thread):
    """How many lines the live windows have counted, and since when."""

    def __init__(self, spec: Spec) -> None:
        super().__init__(daemon=True)
        self.seen: list[tuple[float, int]] = []
        self._is_over = threading.Event()
        settings = {"bootstrap.servers": spec.bootstrap, "group.id": f"{spec.name}-watch"}
        self._consumer = Consumer(
            {**settings, "isolation.level": "read_committed", "auto.offset.reset": "earliest"}
        )
        self._consumer.subscribe([outputs.LIVE.topic(spec)])

    def run(self) -> None:
        counts: dict[str, int] = {}
        while not self._is_over.is_set():
            message = self._consumer.poll(0.2)
            if message is None or message.error():
                continue
            row = json.loads(message.value() or b"{}")
            if row.get("output") == INPUT:
                counts[row["window_start"]] = row["count"]
                self.seen.append((time.time() * 1000, sum(counts.values())))
        self._consumer.close()

    def stop(self) -> None:
        self._is_over.set()
        self.join()


def live_delays_ms(
    spark: SparkSession, feed: Feed, spec: Spec, *, lines_per_second: int, seconds: float
) -> list[float]:
    """From a line's time to the live window that counts it, for every line, all queries on."""
    run.create_topics(spec)
    running = feed.start(spark, spec)
    watcher = Watcher(spec)
    watcher.start()
    try:
        # The first batches plan and compile, as after every start.
        warm = send_paced(feed, spec.topics[0], lines_per_second, _QUIET_SECONDS)
        sent = warm + send_paced(feed, spec.topics[0], lines_per_second, seconds)
        deadline = time.monotonic() + _SECONDS_MAX
        while not watcher.seen or watcher.seen[-1][1] < len(sent):
            assert time.monotonic() < deadline, f"{len(sent)} sent, seen {watcher.seen[-1:]}"
            time.sleep(0.1)
    finally:
        watcher.stop()
        for query in running:
            query.running.stop()
    return delays_ms(sent, watcher.seen)[len(warm) :]


def delays_ms(sent: list[int], seen: list[tuple[float, int]]) -> list[float]:
    """The line with number n is seen as soon as more than n are counted."""
    found: list[float] = []
    for at_ms, count in seen:
        found += [at_ms - time_ms for time_ms in sent[len(found) : count]]
    return found


def send_paced(feed: Feed, topic: str, lines_per_second: int, seconds: float) -> list[int]:
    """Traffic as it happens; the times of its lines."""
    producer = Producer({"bootstrap.servers": feed.bootstrap, "linger.ms": 5, "acks": "all"})
    start_ms = time.time_ns() // 1_000_000
    site = Site(seed=1, start_ms=start_ms, lines_per_second=lines_per_second)
    sent: list[int] = []
    for line in site.lines():
        if line.time_ms > start_ms + seconds * 1000:
            break
        ahead_ms = line.time_ms - time.time_ns() / 1_000_000
        if ahead_ms > 0:
            producer.poll(0)
            time.sleep(ahead_ms / 1000)
        producer.produce(topic, line.data, key=line.source, timestamp=line.time_ms)
        sent.append(line.time_ms)
    assert producer.flush(60) == 0
    return sent
