"""The pipeline on a broker and a source: runs of it, stages of it, and how soon windows are seen.

Two feeds run the same queries with the same settings in the same session: `millstream` reads
from our node by our source, `kafka` from Apache Kafka by Spark's own connector. Everything
after the source is the same code, and results go back to the broker that the lines came from.
Our source has the lines parsed by the worker that fetched them; the connector's lines go to a
Python worker for the same parser.

A stage is everything up to it into Spark's noop sink, so the difference of two stages is what
the second costs. The table in `bench/parts/pipeline.py` says what is made of it.
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
from pyspark.sql.streaming.readwriter import DataStreamWriter

from millstream.ingest.traffic import Site, TrafficLine
from millstream.pipeline import ended_visits as sessions
from millstream.pipeline import outputs, queries, run, windows
from millstream.pipeline.parsing import RECORD_COLUMNS, parse_events
from millstream.pipeline.spark_session import open_session
from millstream.pipeline.spec import Spec, parse_spec
from tests.support.spark_connector import connector_jars

STATE_PARTITIONS: Final = 2
HEAP: Final = "2g"
_SECONDS_MAX: Final = 300.0
_QUIET_SECONDS: Final = 12.0


@dataclass(frozen=True, slots=True)
class Feed:
    """Where lines come from, and by which source."""

    name: str
    bootstrap: str
    read: Callable[[SparkSession, Spec, queries.Query], DataFrame]


def read_by_connector(spark: SparkSession, spec: Spec, query: queries.Query) -> DataFrame:
    """Spark's own source, told what ours is told; its lines are parsed by the same code."""
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", spec.bootstrap)
        .option("subscribe", ",".join(spec.topics))
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(spec.records_per_batch_max))
        .option("kafka.isolation.level", "read_committed")
        .load()
        .select(*RECORD_COLUMNS)
    )
    return records if query.columns is None else parse_events(records, spec, query.columns)


def start_session(folder: Path, master: str) -> SparkSession:
    settings = {"spark.jars": connector_jars(), "spark.driver.memory": HEAP}
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

Stage = Callable[[DataFrame, Spec], DataFrame]


def _as_read(rows: DataFrame, spec: Spec) -> DataFrame:
    return rows


# What is read for it, what is done with that, and in which mode.
STAGES: Final[dict[str, tuple[tuple[str, ...] | None, Stage, str]]] = {
    "read": (None, _as_read, "append"),
    "parse": (windows.NEEDED, _as_read, "append"),
    "live windows": (windows.NEEDED, windows.live_windows, "update"),
    "final windows": (windows.NEEDED, windows.final_windows, "append"),
    "visits": (sessions.NEEDED, sessions.sessions, "append"),
}
TABLES: Final = "tables"


def run_stage(spark: SparkSession, feed: Feed, spec: Spec, name: str) -> float:
    """Seconds that the batches took, without the start of the query."""
    if name == TABLES:
        [store] = [query for query in queries.QUERIES if query.name == queries.STORE]
        return seconds_of([_start(spark, feed, spec, store, once=True)])
    columns, stage, mode = STAGES[name]

    def build(rows: DataFrame, spec: Spec, counts: queries.LineCounts) -> DataStreamWriter:
        return stage(rows, spec).writeStream.format("noop").outputMode(mode)

    query = queries.Query(name, 0, False, columns, build)
    return seconds_of([_start(spark, feed, spec, query, once=True)])


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
    """One run of all queries but that by the clock, over lines sent meanwhile."""

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
    running = [
        _start(spark, feed, spec, query, once=False)
        for query in queries.QUERIES
        if not query.is_by_clock
    ]
    try:
        _wait_for(running, len(first))
        began = time.monotonic()
        send_lines(feed, topic, lines)
        reports = _wait_for(running, len(first) + len(lines))
        seconds = time.monotonic() - began
    finally:
        for query in running:
            query.stop()
    durations: dict[str, int] = {}
    for report in reports:
        for name, value in report["durationMs"].items():
            durations[name] = durations.get(name, 0) + value
    return Whole(len(lines), seconds, durations)


def _wait_for(running: list[StreamingQuery], count: int) -> list[dict[str, Any]]:
    """Until every query has taken so many lines; their progress reports."""
    deadline = time.monotonic() + _SECONDS_MAX
    while True:
        reports = [[json.loads(each.json) for each in query.recentProgress] for query in running]
        taken = [sum(each["numInputRows"] for each in of_query) for of_query in reports]
        if min(taken) >= count:
            return [each for of_query in reports for each in of_query]
        failed = [query.exception() for query in running if not query.isActive]
        assert not failed, failed
        assert time.monotonic() < deadline, f"{taken} of {count} lines taken"
        time.sleep(0.1)


def _start(
    spark: SparkSession, feed: Feed, spec: Spec, query: queries.Query, *, once: bool
) -> StreamingQuery:
    """As the pipeline starts its queries, with the source of the feed."""
    rows = feed.read(spark, spec, query)
    return queries.start_on(rows, spec, query, queries.LineCounts(), once=once)


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
            if row.get("output") == windows.INPUT:
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
    running = [_start(spark, feed, spec, query, once=False) for query in queries.QUERIES]
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
            query.stop()
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
