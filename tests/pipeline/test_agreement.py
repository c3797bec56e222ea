"""Windows, dead letters and tables against a plain reading of the same lines."""

import json
import time
from collections import Counter
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from millstream.ingest.bad_lines import with_bad_lines
from millstream.ingest.traffic import Site, TrafficLine
from millstream.pipeline import outputs
from millstream.pipeline.spec import Spec
from millstream.testing import Broker
from tests.pipeline.conftest import MakeSpec
from tests.pipeline.plain_reading import PlainResults, read_plainly

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

SPEC = """
name = "{name}"
bootstrap = "{bootstrap}"
[input]
topics = ["{topic}"]
[windows]
session_gap = "1 minute"
"""


def send(bootstrap: str, topic: str, lines: list[TrafficLine]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for line in lines:
        producer.produce(topic, line.data, key=line.source, timestamp=line.time_ms)
        producer.poll(0)
    assert producer.flush(30) == 0


def read_topic(spec: Spec, output: outputs.Output) -> list[Any]:
    """All records that are committed: value and headers."""
    consumer = Consumer(
        {
            "bootstrap.servers": spec.bootstrap,
            "group.id": "agreement",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    count = spec.state_partitions
    consumer.assign([TopicPartition(output.topic(spec), each, 0) for each in range(count)])
    found: list[Any] = []
    ended = 0
    while ended < count:
        message = consumer.poll(10)
        assert message is not None
        if message.error():
            ended += 1
        else:
            found.append(message)
    consumer.close()
    return found


def newest(spec: Spec, output: outputs.Output) -> dict[bytes, dict[str, Any]]:
    return {each.key(): json.loads(each.value()) for each in read_topic(spec, output)}


def window_ms(row: dict[str, Any]) -> int:
    return round(datetime.fromisoformat(row["window_start"]).timestamp() * 1000)


def check_windows(rows: list[dict[str, Any]], plain: PlainResults, *, is_final: bool) -> None:
    """Every window that is there is right in all it says."""
    for row in rows:
        window, key = window_ms(row), (window_ms(row), row["name"])
        assert row["final"] == is_final
        if row["output"] == "input":
            assert row["count"] == plain.input[window]
        if row["output"] == "service":
            assert row["count"] == plain.services[key]
            assert row["errors"] == plain.service_errors[key]
            check_percentiles(row, sorted(plain.durations[key]))
        if row["output"] == "site":
            assert row["count"] == plain.views[window]
            top = plain.pages[window].most_common()
            assert [each["count"] for each in row["top_pages"]] == [n for _, n in top[:10]]
            visitors = len(plain.visitors[window])
            if is_final:
                assert row["visitors"] == visitors
            else:
                bound = 4 * row["visitors_relative_sd"] * visitors
                assert abs(row["visitors"] - visitors) <= max(1, bound)


def check_percentiles(row: dict[str, Any], values: list[float]) -> None:
    for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        bound = row["percentile_rank_error"] * len(values) + 1
        rank = share * len(values)
        lowest = values[max(0, int(rank - bound) - 1)]
        highest = values[min(len(values) - 1, int(rank + bound))]
        assert lowest <= row[f"duration_ms_{name}"] <= highest


def run_once(spark: "SparkSession", spec: Spec) -> None:
    from millstream.pipeline.run import start, watch

    running = start(spark, spec, once=True)
    try:
        status = watch(running, lambda status: None, is_over=lambda status: False)
    finally:
        running.stop()
    assert [query.dropped for query in status.queries] == [0] * len(status.queries)


def test_real_time_warehouse_and_a_plain_reading_agree(
    spark: "SparkSession", kafka: Broker, make_topic: Any, make_spec: MakeSpec
) -> None:
    from pyspark.sql import functions as F

    from millstream.pipeline.outputs import table_path
    from millstream.spark import read_table

    topic = make_topic(partitions=2)
    spec = make_spec(
        SPEC.format(name=f"agree-{time.time_ns()}", bootstrap=kafka.bootstrap, topic=topic)
    )
    start_ms = time.time_ns() // 1_000_000 - 3 * 3600 * 1000
    site = Site(seed=11, start_ms=start_ms, lines_per_second=20)
    lines = list(islice(with_bad_lines(site.lines(), seed=5, share=0.05), 6000))
    half = len(lines) // 2
    # A later line moves the watermark past all windows before it.
    later_ms = lines[-1].time_ms + 3600 * 1000
    last = TrafficLine(later_ms, "db-1/health", b"ts=%d host=db-1" % later_ms)
    send(kafka.bootstrap, topic, lines[:half])
    run_once(spark, spec)
    send(kafka.bootstrap, topic, [*lines[half:], last])
    run_once(spark, spec)
    plain = read_plainly(lines, ahead_ms=spec.ahead_ms, late_ms=spec.late_ms)

    dead = read_topic(spec, outputs.DEAD)
    reasons = Counter(dict(each.headers())["reason"].decode() for each in dead)
    assert reasons == plain.dead
    assert set(reasons) == {"unparsable", "ahead", "late"}
    assert len(dead) + plain.good == len(lines)

    final = list(newest(spec, outputs.FINAL).values())
    assert len(read_topic(spec, outputs.FINAL)) == len(final), "a window was written twice"
    check_windows(final, plain, is_final=True)
    assert sum(r["count"] for r in final if r["output"] == "input") == plain.good
    assert sum(r["count"] for r in final if r["output"] == "site") == plain.views.total()

    live = [
        row for row in newest(spec, outputs.LIVE).values() if window_ms(row) <= lines[-1].time_ms
    ]
    check_windows(live, plain, is_final=False)
    assert sum(r["count"] for r in live if r["output"] == "input") == plain.good

    sessions = newest(spec, outputs.SESSIONS).values()
    assert sum(each["views"] for each in sessions) == plain.views.total()

    events = read_table(spark, table_path(spec, "events"))
    assert read_table(spark, table_path(spec, "raw")).count() == len(lines) + 1
    flags = {row["problem"]: row["count"] for row in events.groupBy("problem").count().collect()}
    assert flags == {
        None: plain.good + 1,
        "ahead": plain.dead["ahead"],
        "late": plain.dead["late"],
    }
    stored = (
        events.where("problem IS NULL AND service IS NOT NULL")
        .groupBy(F.window("event_time", "1 minute").start.alias("start"), "service")
        .count()
    )
    counts = {
        (round(row["start"].astimezone(UTC).timestamp() * 1000), row["service"]): row["count"]
        for row in stored.collect()
    }
    assert counts == dict(plain.services)
