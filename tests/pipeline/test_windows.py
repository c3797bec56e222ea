"""Windows made from rows in memory: what Spark counts in batch it counts in a stream."""

from typing import TYPE_CHECKING, Any

import pytest

from millstream.pipeline.spec import WINDOW_COLUMNS
from tests.pipeline.conftest import MakeSpec
from tests.pipeline.test_parsing import NOW, SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow

LINES = [
    b"ts=2026-09-21T13:59:01Z host=db-1 cpu=0.5 memory=0.25",
    b"ts=2026-09-21T13:59:02Z host=db-1 cpu=0.75 memory=much",
    b"ts=2026-09-21T13:59:03Z host=db-2 state=fine",
    b'203.0.113.9 - ann [21/Sep/2026:13:59:04 +0000] "GET /cart HTTP/1.1" 200 5 "-" "a"',
]


def windows(rows: "DataFrame") -> dict[tuple[str, str], dict[str, Any]]:
    return {(row.output, row["name"]): row.asDict(True) for row in rows.collect()}


def test_a_window_of_a_host_has_its_gauges_and_every_window_a_rate(
    spark: "SparkSession", make_spec: MakeSpec
) -> None:
    from millstream.pipeline.parsing import parse_events
    from millstream.pipeline.windows import final_windows, live_windows

    spec = make_spec()
    rows = [(b"web-1/log", line, "logs", 0, n, NOW) for n, line in enumerate(LINES)]
    events = parse_events(spark.createDataFrame(rows, SCHEMA), spec)
    for made in (live_windows(events, spec), final_windows(events, spec)):
        assert set(made.columns) == {*WINDOW_COLUMNS, *spec.gauges}
        found = windows(made)
        host = found["host", "db-1"]
        assert (host["count"], host["per_second"]) == (2, 0.033)
        assert host["cpu"] == {"mean": 0.625, "max": 0.75}
        assert host["memory"] == {"mean": 0.25, "max": 0.25}
        assert host["disk"] is None
        assert found["host", "db-2"]["cpu"] is None
        assert found["input", "all"]["cpu"] is None
        assert found["input", "all"]["count"] == 4
        assert found["site", "all"]["visitors"] == 1


def test_windows_and_visits_are_made_from_the_columns_they_say_they_need(
    spark: "SparkSession", make_spec: MakeSpec
) -> None:
    """Queries read no others, and no line is parsed twice."""
    from millstream.pipeline import ended_visits as sessions
    from millstream.pipeline import windows
    from millstream.pipeline.parsing import parse_events

    spec = make_spec()
    lines = spark.createDataFrame([], SCHEMA)
    for needed, make in (
        (windows.NEEDED, windows.live_windows),
        (windows.NEEDED, windows.final_windows),
        (sessions.NEEDED, sessions.sessions),
    ):
        made = make(parse_events(lines, spec, needed), spec)
        plan = made._jdf.queryExecution().optimizedPlan().toString()
        assert plan.count("MapInArrow") == 1


def test_a_silence_of_exactly_the_gap_ends_a_visit(
    spark: "SparkSession", make_spec: MakeSpec
) -> None:
    from millstream.pipeline.ended_visits import NEEDED, sessions
    from millstream.pipeline.parsing import parse_events

    spec = make_spec('[windows]\nsession_gap = "1 minute"')
    views = ["13:50:00", "13:50:12", "13:51:12", "13:52:11"]
    line = '203.0.113.9 - ann [21/Sep/2026:{} +0000] "GET /cart HTTP/1.1" 200 5 "-" "a"'
    rows = [(b"w/log", line.format(at).encode(), "logs", 0, n, NOW) for n, at in enumerate(views)]
    events = parse_events(spark.createDataFrame(rows, SCHEMA), spec, NEEDED)
    found = sessions(events, spec).orderBy("session_start").collect()
    assert [visit["views"] for visit in found] == [2, 2]
