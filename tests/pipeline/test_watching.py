"""Open visits and their funnel: the processors alone, then through Spark as the pipeline runs."""

import json
import time
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import Row

from millstream.ingest import log_lines
from millstream.ingest.traffic import TrafficLine
from millstream.pipeline import outputs
from millstream.pipeline.watching import (
    FUNNEL,
    OPEN,
    OVER,
    VisitorWatch,
    _FunnelWatch,
    _heard,
    _Watch,
)
from tests.pipeline.agreement import newest, read_topic, send
from tests.pipeline.conftest import MakeSpec
from tests.pipeline.processors import FakeHandle, Now
from tests.support.broker import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GAP_MS = 60_000


class Visitor:
    """A visitor under watch; time is what the test says."""

    def __init__(self) -> None:
        self.handle = FakeHandle()
        self._watch = VisitorWatch(
            self.handle,  # type: ignore[arg-type]
            gap_ms=GAP_MS,
            window_ms=10_000,
        )

    def sees(self, now_ms: int, *views: tuple[int, int]) -> list[Row]:
        rows = [
            Row(at_us=at_ms * 1000, is_error=False, step=step, partition=0, offset=offset)
            for offset, (at_ms, step) in enumerate(views)
        ]
        return list(self._watch.hear("v", iter(rows), now_ms))

    def passes(self, now_ms: int) -> list[Row]:
        expired = self.handle.take_expired(now_ms)
        return [row for _ in expired for row in self._watch.wake("v", now_ms)]


def test_a_visit_is_shown_at_every_change_and_taken_back_when_it_is_over() -> None:
    visitor = Visitor()
    [row] = visitor.sees(100_000, (95_000, 1), (90_000, 0))
    assert (row.kind, row.views, row.step, row.step_before) == (OPEN, 2, 1, -1)
    assert (row.since_us, row.last_us, row.window_us) == (90_000_000, 95_000_000, 90_000_000)
    assert visitor.passes(159_999) == []
    [row] = visitor.sees(159_999, (154_000, 2))
    assert (row.views, row.step_before, row.step) == (3, 1, 2)
    # The first timer runs out, but the visit went on since.
    assert visitor.passes(160_000) == []
    assert visitor.passes(219_998) == []
    [row] = visitor.passes(219_999)
    assert (row.kind, row.subject) == (OVER, "v")
    assert visitor.passes(10**9) == []
    assert visitor.handle.timers == set()


def test_of_two_visits_in_a_batch_only_the_newest_is_shown() -> None:
    rows = Visitor().sees(200_000, (0, 0), (60_000, 0))
    assert [row.kind for row in rows] == ["replaced", OPEN]


def test_a_funnel_hands_on_what_it_counts_and_forgets_windows_that_rest(
    make_spec: MakeSpec,
) -> None:
    handle = FakeHandle()
    watch = _FunnelWatch(make_spec("[windows]\nfunnel = ['/a', '/b']\nsession_gap = '1 minute'"))
    watch.init(handle)  # type: ignore[arg-type]

    def count(now_ms: int, window_us: int, *moves: tuple[int, int]) -> list[Row]:
        rows = [Row(kind=OPEN, step_before=before, step=step) for before, step in moves]
        found = watch.handleInputRows((window_us,), iter(rows), Now(now_ms))  # type: ignore[arg-type]
        return list(found)

    assert [row.kind for row in count(1000, 0, (0, 0))] == [OPEN]
    assert handle.timers == set()
    rows = count(1000, 7, (-1, 1), (-1, 0))
    assert [row.kind for row in rows] == [OPEN, OPEN, FUNNEL]
    assert rows[-1].counts == [2, 1, 0]
    # A view that is no step changes no funnel.
    assert [row.kind for row in count(2000, 7, (1, 1))] == [OPEN]
    assert count(3000, 7, (1, 2))[-1].counts == [2, 1, 1]
    for now_ms in (121_000, 123_000):
        for _ in handle.take_expired(now_ms):
            assert list(watch.handleExpiredTimer((7,), Now(now_ms), None)) == []  # type: ignore[arg-type]
    assert handle.states["funnel"].get() is None


def test_a_key_is_watched_as_what_it_is(make_spec: MakeSpec) -> None:
    handle = FakeHandle()
    watch = _Watch(make_spec())
    watch.init(handle)  # type: ignore[arg-type]
    nothing: Any = iter([])
    assert list(watch.handleInputRows(("host", "web-1"), nothing, Now(0))) == []  # type: ignore[arg-type]
    [row] = watch.handleExpiredTimer(("host", "web-1"), Now(20_000), None)  # type: ignore[arg-type]
    assert (row.kind, row.subject, row.window_us) == ("silent", "web-1", 0)


def test_each_host_of_a_batch_is_carried_once_and_every_view() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "host": ["a", "b", "a", None],
            "visitor": ["v", None, None, "w"],
            "at_us": [1, 2, 3, 4],
            "is_error": [False] * 4,
            "step": [0, 0, 0, 1],
            "partition": [0] * 4,
            "offset": [5, 6, 7, 8],
        }
    )
    rows = [row for part in _heard(iter([batch])) for row in part.to_pylist()]
    assert [(row["kind"], row["name"], row["offset"]) for row in rows] == [
        ("host", "a", None),
        ("host", "b", None),
        ("visitor", "v", 5),
        ("visitor", "w", 8),
    ]


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


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_visits_and_funnels_are_live_and_end_by_the_clock(
    spark: "SparkSession", kafka: Broker, make_topic: Callable[..., str], make_spec: MakeSpec
) -> None:
    from millstream.pipeline.queries import QUERIES, LineCounts, start_query
    from millstream.pipeline.run import create_topics
    from tests.support.waiting import wait_until

    spec = make_spec(
        f"""
        name = "watch-{time.time_ns()}"
        bootstrap = "{kafka.bootstrap}"
        timezone = "Europe/Berlin"
        trigger = "1 second"
        input.topics = ["{make_topic(partitions=2)}"]
        windows.session_gap = "5 seconds"
        """
    )
    create_topics(spec)
    [query] = [each for each in QUERIES if each.name == "watch"]
    now_ms = time.time_ns() // 1_000_000 // 60_000 * 60_000
    lines = [
        page_view(now_ms, "ann", "/product/1"),
        page_view(now_ms + 1000, "ann", "/cart"),
        page_view(now_ms + 2000, "bob", "/about"),
        # Without a step before it.
        page_view(now_ms + 3000, "eve", "/thanks"),
    ]
    send(kafka.bootstrap, spec.topics[0], lines)
    running = start_query(spark, spec, query, LineCounts(), once=False)
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
