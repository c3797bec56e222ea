"""Batches by the clock, through Spark, as the pipeline runs them.

Covers pipeline/line_source.py, pipeline/line_stream.py, pipeline/queries.py.
"""

import json
import time
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from millstream.ingest import log_lines
from millstream.ingest.traffic import TrafficLine
from millstream.pipeline import outputs
from millstream.pipeline.line_stream import LinePartition, LineStream
from millstream.pipeline.queries import LINES, pass_rules, read_options
from millstream.spark.option_table import Use
from millstream.spark.options import parse_read_options
from tests.pipeline.agreement import newest, read_topic, send
from tests.pipeline.conftest import MakeSpec
from tests.support.broker import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPEC = """
name = "watch-{name}"
bootstrap = "{bootstrap}"
timezone = "Europe/Berlin"
trigger = "1 second"
input.topics = ["{topic}"]
windows.session_gap = "5 seconds"
windows.silent_after = "3 seconds"
"""


def page_view(time_ms: int, user: str, page: str) -> TrafficLine:
    line = log_lines.combined(
        time_ms,
        address="203.0.113.9",
        user=user,
        request=f"GET {page}",
        status=200,
        size_bytes=1,
        referrer="-",
        agent="a",
    )
    return TrafficLine(time_ms, "web-1/access", line)


def clocks_and_ranges(stream: LineStream, start: Any, end: Any) -> tuple[set[Any], list[Any]]:
    tasks = stream.partitions(start, end)
    assert all(isinstance(task, LinePartition) for task in tasks)
    ranges = [task.value.value for task in tasks]  # type: ignore[attr-defined]
    sizes = [None if each is None else each.upto_offset - each.from_offset for each in ranges]
    return {task.now_ms for task in tasks}, sizes  # type: ignore[attr-defined]


def test_every_trigger_is_a_batch_with_its_clock(
    kafka: Broker, make_topic: Callable[..., str], make_spec: MakeSpec
) -> None:
    topic = make_topic(partitions=1)
    spec = make_spec(SPEC.format(name="a", bootstrap=kafka.bootstrap, topic=topic))
    options = parse_read_options(read_options(spec, LINES), Use.STREAM_READ)
    stream = LineStream(options, pass_rules(spec, LINES).to_json())
    send(kafka.bootstrap, topic, [page_view(0, "ann", "/"), page_view(0, "bob", "/")])
    start = stream.initialOffset()
    first = stream.latestOffset(start, ReadAllAvailable())
    [clock], sizes = clocks_and_ranges(stream, start, first)
    assert sizes == [2]
    assert abs(clock - time.time_ns() // 1_000_000) < 60_000
    # Nothing is new: a batch all the same, of the clock alone.
    second = stream.latestOffset(first, ReadAllAvailable())
    assert second != first
    later, sizes = clocks_and_ranges(stream, first, second)
    assert (sizes, later) == ([None], {second["@clock"]})
    # Planned again after a crash it is the same.
    assert clocks_and_ranges(stream, start, first) == ({clock}, [2])
    # What ends when all was read has no clock.
    stream.prepareForTriggerAvailableNow()
    assert stream.latestOffset(second, ReadAllAvailable()) == second


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_visits_hosts_and_funnels_are_live_and_end_by_the_clock(
    spark: "SparkSession", kafka: Broker, make_topic: Callable[..., str], make_spec: MakeSpec
) -> None:
    from millstream.pipeline.progress import Watched
    from millstream.pipeline.queries import start_lines
    from millstream.pipeline.run import create_topics
    from tests.support.waiting import wait_until

    topic = make_topic(partitions=2)
    spec = make_spec(SPEC.format(name=time.time_ns(), bootstrap=kafka.bootstrap, topic=topic))
    create_topics(spec)
    now_ms = time.time_ns() // 1_000_000 // 60_000 * 60_000
    lines = [
        page_view(now_ms, "ann", "/product/1"),
        page_view(now_ms + 1000, "ann", "/cart"),
        page_view(now_ms + 2000, "bob", "/about"),
        # Without a step before it.
        page_view(now_ms + 3000, "eve", "/thanks"),
    ]
    send(kafka.bootstrap, spec.topics[0], lines)
    running = start_lines(spark, spec, LINES, Watched(), once=False)
    try:

        def over() -> list[Any]:
            assert running.exception() is None
            return [each for each in read_topic(spec, outputs.VISITS) if each.value() is None]

        wait_until(lambda: len(over()) == 3, "all visits are over", seconds_max=240)
    finally:
        running.stop()
    said = [json.loads(each.value()) for each in read_topic(spec, outputs.VISITS) if each.value()]
    assert sorted((each["views"], each["funnel_step"]) for each in said) == [(1, 0), (1, 0), (2, 2)]
    assert {each["final"] for each in said} == {False}
    [funnel] = newest(spec, outputs.FUNNELS).values()
    assert (funnel["visits"], funnel["final"]) == (3, False)
    assert [each["visits"] for each in funnel["steps"]] == [1, 1, 0, 0]
    assert datetime.fromisoformat(funnel["window_start"]).timestamp() * 1000 == now_ms
    alerts = [(each["kind"], each["subject"]) for each in newest(spec, outputs.ALERTS).values()]
    assert alerts == [("silent", "web-1")]
