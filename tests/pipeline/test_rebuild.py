"""What is made again from the tables is what real time wrote, and takes its place."""

import json
import time
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from millstream.ingest.bad_lines import with_bad_lines
from millstream.ingest.traffic import Site, TrafficLine
from millstream.pipeline import outputs
from millstream.pipeline.outputs import table_path
from millstream.pipeline.reporting.reports import make_reports_since, reported
from millstream.pipeline.spec import Spec
from millstream.warehouse.files import Batch
from millstream.warehouse.tables import commit_files, find_table, open_table
from tests.pipeline.agreement import read_topic, send
from tests.pipeline.conftest import MakeSpec
from tests.support.broker import Broker
from tests.warehouse.table_cases import write_table_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

ZONE = "America/New_York"
HALF_AN_HOUR_MS = 30 * 60 * 1000
SPEC = """
name = "{name}"
bootstrap = "{bootstrap}"
timezone = "America/New_York"
[input]
topics = ["{topic}"]
[windows]
session_gap = "5 minutes"
counters = ["served"]
[warehouse]
format = "parquet"
"""
Results = dict[bytes, dict[str, Any]]


def results(spec: Spec, output: outputs.Output) -> Results:
    """The newest value of each key that was not removed."""
    values = {each.key(): each.value() for each in read_topic(spec, output)}
    # Sums of fractions depend on their order: the last digits are left out.
    return {
        key: json.loads(value, parse_float=lambda text: float(f"{float(text):.9g}"))
        for key, value in values.items()
        if value is not None
    }


def events_of(spec: Spec) -> list[str]:
    table = find_table(table_path(spec, "events"))
    assert table is not None
    return sorted(json.dumps(row, default=str) for row in table.dataset().to_table().to_pylist())


def midnight_ms(day: date) -> int:
    local = datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(ZONE))
    return round(local.astimezone(UTC).timestamp() * 1000)


def lines_around(middle_ms: int) -> list[TrafficLine]:
    """Half an hour on both sides, and a line that closes all windows and visits."""
    site = Site(seed=3, start_ms=middle_ms - HALF_AN_HOUR_MS, lines_per_second=2)
    lines = []
    for line in with_bad_lines(site.lines(), seed=5, share=0.02):
        if line.time_ms >= middle_ms + HALF_AN_HOUR_MS:
            break
        lines.append(line)
    later_ms = middle_ms + 4 * HALF_AN_HOUR_MS
    return [*lines, TrafficLine(later_ms, "db-1/health", b"ts=%d host=db-1" % later_ms)]


def run_once(spark: "SparkSession", spec: Spec) -> None:
    from millstream.pipeline.run import start, watch

    running = start(spark, spec, once=True)
    try:
        watch(running, lambda status: None, print, is_over=lambda status: False)
    finally:
        running.stop()


def begins_ms(key: bytes) -> int:
    told = json.loads(key)
    text = told.get("window_start") or told["session_start"]
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def test_what_is_made_again_is_what_real_time_wrote(
    spark: "SparkSession",
    kafka: Broker,
    make_topic: Any,
    make_spec: MakeSpec,
) -> None:
    from millstream.pipeline.rebuild import rebuild
    from millstream.pipeline.spark_session import prepare

    topic = make_topic(partitions=2)
    name = f"again-{time.time_ns()}"
    spec = make_spec(SPEC.format(name=name, bootstrap=kafka.bootstrap, topic=topic))
    prepare(spark, spec)
    day = datetime.now(ZoneInfo(ZONE)).date() - timedelta(days=2)
    day_ms = midnight_ms(day)
    lines = lines_around(day_ms)
    half = len(lines) // 3
    for part in (lines[:half], lines[half:]):
        send(kafka.bootstrap, topic, part)
        run_once(spark, spec)

    # -- reports, made while it ran
    days = {f"daily-{each}" for each in (day - timedelta(days=1), day)}
    assert days <= reported(spec.home)
    assert {path.name for path in make_reports_since(spec, day)} >= {f"daily-{day}"}

    # -- topics
    for output_name, output in (("windows", outputs.FINAL), ("sessions", outputs.SESSIONS)):
        before = results(spec, output)
        assert min(map(begins_ms, before)) < day_ms < max(map(begins_ms, before))
        put_stale(spec, output, before, day_ms)
        assert len(results(spec, output)) == len(before) + 2
        done = rebuild(spark, spec, output_name, day)
        after = results(spec, output)
        # The one of the day is gone; the one of the day before is none of its business.
        more = {key: after.pop(key) for key in set(after) - set(before)}
        assert [begins_ms(key) < day_ms for key in more] == [True], more
        assert after == before
        since = [key for key in before if begins_ms(key) >= day_ms]
        assert (done.first_day, done.written, done.removed) == (day, len(since), 1)
        assert written_again(spec, output) == len(since)
    live = results(spec, outputs.LIVE)
    rebuild(spark, spec, "live", day)
    assert counts_of(results(spec, outputs.LIVE)) == counts_of(live)

    # -- the table of events
    rows = events_of(spec)
    done = rebuild(spark, spec, "events", day)
    assert events_of(spec) == rows
    assert 0 < done.written < len(rows)
    early = rebuild(spark, spec, "events", date(2020, 1, 1))
    assert (early.first_day, early.written) == (day - timedelta(days=1), len(rows))
    assert events_of(spec) == rows


RAW = pa.schema(
    [
        *((name, pa.string()) for name in ("topic", "source", "problem", "detail", "date")),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("record_time", pa.timestamp("us", tz="UTC")),
        ("value", pa.binary()),
    ]
)


def make_tables(spec: Spec, *, value: bytes | None, last_events_batch: int) -> None:
    """Both tables, as the query `q` would leave them after two batches."""
    for name, last in (("raw", 1), ("events", last_events_batch)):
        path = table_path(spec, name)
        for number in range(last + 1):
            row: dict[str, object] = {
                "topic": "logs",
                "source": "web-1/access",
                "date": "2026-09-21",
                "partition": 0,
                "offset": number,
                "record_time": datetime(2026, 9, 21, tzinfo=UTC),
                "value": value,
            }
            files = write_table_rows(path, [row], RAW, "delta")
            commit_files(open_table(path, RAW, "delta"), Batch("q", number), files)
    metadata = spec.home / "checkpoints" / "lines" / "metadata"
    metadata.parent.mkdir(parents=True)
    metadata.write_text('{"id":"q"}')


@pytest.mark.parametrize(
    ("value", "last_events_batch", "said"),
    [(None, 1, "because of parse.mask"), (b"x", 0, "a batch is being stored")],
)
def test_events_are_not_made_from_what_is_not_there(
    spark: "SparkSession",
    make_spec: MakeSpec,
    value: bytes | None,
    last_events_batch: int,
    said: str,
) -> None:
    from millstream.pipeline.rebuild import CannotRebuild, rebuild

    spec = make_spec()
    with pytest.raises(CannotRebuild, match="there is no table"):
        rebuild(spark, spec, "events", date(2026, 9, 21))
    make_tables(spec, value=value, last_events_batch=last_events_batch)
    with pytest.raises(CannotRebuild, match=said):
        rebuild(spark, spec, "events", date(2026, 9, 21))


def put_stale(spec: Spec, output: outputs.Output, known: Results, day_ms: int) -> None:
    """A result of that day and one of the day before that the events do not give."""
    # Where Spark's writer, and Java's, would put that key.
    settings = {"bootstrap.servers": spec.bootstrap, "partitioner": "murmur2_random"}
    producer = Producer(settings)
    for is_before in (True, False):
        key = next(each for each in known if (begins_ms(each) < day_ms) == is_before)
        other = {**json.loads(key), **({"name": "x"} if b"output" in key else {"visitor": "x"})}
        value = {**known[key], **other}
        producer.produce(output.topic(spec), json.dumps(value), key=json.dumps(other))
    assert producer.flush(30) == 0


def written_again(spec: Spec, output: outputs.Output) -> int:
    keys = [each.key() for each in read_topic(spec, output) if each.value() is not None]
    return len(keys) - len(set(keys))


def counts_of(live: Results) -> dict[bytes, tuple[int, int, int]]:
    return {
        key: (row["count"], row["errors"], row["size_bytes"])
        for key, row in live.items()
        if "size_bytes" in row
    }
