"""Historic lines in a run of their own."""

import time
from typing import TYPE_CHECKING, Any

import pytest

from millstream.ingest import log_lines
from millstream.pipeline import outputs
from millstream.pipeline.queries import LINES, checkpoint
from millstream.pipeline.spec import SpecError
from tests.pipeline.agreement import newest
from tests.pipeline.conftest import MakeSpec
from tests.pipeline.test_bad_input import send
from tests.support.broker import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MINUTE_MS = 60_000


def test_a_pipeline_that_runs_in_real_time_is_not_backfilled(make_spec: MakeSpec) -> None:
    from millstream.pipeline.backfill import check_backfill

    spec = make_spec()
    check_backfill(spec)
    checkpoint(spec, LINES).mkdir(parents=True)
    with pytest.raises(SpecError, match="another name and home"):
        check_backfill(spec)
    with pytest.raises(SpecError, match="goes through the tables"):
        check_backfill(make_spec("warehouse.format = 'none'"))
    with pytest.raises(SpecError, match="progress is in its home"):
        check_backfill(make_spec("state = 's3://lake/shop'"))


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_lines_of_any_age_become_closed_windows_and_visits_once(
    spark: "SparkSession", kafka: Broker, make_topic: Any, make_spec: MakeSpec
) -> None:
    from millstream.pipeline.backfill import backfill

    spec = make_spec(
        f"""
        name = "old-{time.time_ns()}"
        bootstrap = "{kafka.bootstrap}"
        input.topics = ["{make_topic()}"]
        """
    )
    now_ms = time.time_ns() // 1_000_000
    long_ago_ms = 1_100_000_000_000 // MINUTE_MS * MINUTE_MS

    def view(at_ms: int) -> tuple[int, bytes]:
        said = log_lines.combined(
            at_ms,
            address="203.0.113.9",
            user="ann",
            request="GET /product/1",
            status=200,
            size_bytes=1,
            referrer="-",
            agent="a",
        )
        return now_ms, said

    send(spec, [view(long_ago_ms), view(long_ago_ms + 1000), (now_ms, b"no line")])
    first = backfill(spark, spec, print)
    assert first.lines == {"good": 2, "unparsable": 1}
    # Of an old window more may come, and a later one.
    send(spec, [view(long_ago_ms + 2000), view(long_ago_ms + 90 * MINUTE_MS)])
    second = backfill(spark, spec, print)
    assert second.lines == {"good": 2}
    windows = [row for row in newest(spec, outputs.FINAL).values() if row["output"] == "input"]
    assert sorted(row["count"] for row in windows) == [1, 3]
    visits = newest(spec, outputs.SESSIONS).values()
    assert sorted(each["views"] for each in visits) == [1, 3]
    assert {each["funnel_step"] for each in visits} == {1}
