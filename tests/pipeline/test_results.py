"""Results as JSON, which must be what Spark writes for the same values.

Covers pipeline/results.py, pipeline/json_times.py.
"""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from millstream.pipeline.anomalies import AnomalyAlert, Range
from millstream.pipeline.json_times import json_time
from millstream.pipeline.open_results import Changes, Site, Window
from millstream.pipeline.results import Record, per_second, records_of, to_batch
from millstream.pipeline.silence import HostAlert
from millstream.pipeline.visit_log import Visit
from millstream.pipeline.window_totals import Gauge, WindowTotals
from tests.pipeline.conftest import MakeSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START_US = 1_790_000_040_000_000


@pytest.fixture
def records(make_spec: MakeSpec) -> Callable[[Changes], list[Record]]:
    spec = make_spec('name = "n"\n[windows]\ntop = 2\nfunnel = ["/a", "/b"]\ngauges = ["cpu", "x"]')
    return lambda changes: records_of(changes, spec)


def test_a_window_says_what_is_known_of_it(records: Callable[[Changes], list[Record]]) -> None:
    totals = WindowTotals(count=90, errors=2, size_bytes=7)
    pages = {"/c": 1, "/b": 4, "/a": 4}
    site = Window((START_US, "site", "all"), totals, Site(np.array([3, 4], np.uint64), pages))
    [(topic, key, value)] = records(Changes(live=[site]))
    assert (topic, value is not None) == ("n.live", True)
    assert key == '{"window_start":"2026-09-21T14:14:00.000Z","output":"site","name":"all"}'
    assert json.loads(value or "") == {
        **json.loads(key),
        "window_end": "2026-09-21T14:15:00.000Z",
        "final": False,
        "count": 90,
        "per_second": 1.5,
        "errors": 2,
        "size_bytes": 7,
        "visitors": 2,
        "visitors_relative_sd": 0.0,
        "top_pages": [{"path": "/a", "count": 4}, {"path": "/b", "count": 4}],
    }


def test_latencies_and_gauges_are_there_where_there_are_any(
    records: Callable[[Changes], list[Record]],
) -> None:
    totals = WindowTotals(count=3, duration_max=9.0, gauges=[Gauge(2, 1.5, 1.0), Gauge()])
    totals.durations.add(np.array([9.0, 1.0, 2.0]))
    [(topic, _, value)] = records(Changes(closed=[Window((0, "host", "db"), totals, None)]))
    found = json.loads(value or "")
    assert (topic, found["final"], found["cpu"]) == ("n.windows", True, {"mean": 0.75, "max": 1.0})
    assert (found["duration_ms_p50"], found["duration_ms_p99"], found["duration_ms_max"]) == (
        2,
        9,
        9,
    )
    assert found["percentile_rank_error"] == 0.001
    assert not {"x", "visitors", "top_pages"} & set(found)


@pytest.mark.parametrize(("errors", "is_burst"), [(4, False), (5, True), (10, True)])
def test_a_service_that_fails_too_often_is_an_alert(
    records: Callable[[Changes], list[Record]], errors: int, is_burst: bool
) -> None:
    totals = WindowTotals(count=40, errors=errors)
    found = records(Changes(live=[Window((0, "service", "cart"), totals, None)]))
    alerts = [json.loads(value or "") for topic, _, value in found if topic == "n.alerts"]
    assert [alert["text"] for alert in alerts] == [f"{errors} of 40 requests failed"] * is_burst


def test_visits_funnels_and_hosts(records: Callable[[Changes], list[Record]]) -> None:
    visit = Visit(START_US, START_US + 1500, 2, 1, steps=[(START_US, 0, 0, 1)])
    found = records(
        Changes(
            ended_visits=[(255, visit)],
            open_visits={255: visit, 7: None},
            funnels={START_US: [3, 2, 1]},
            hosts=[HostAlert("silent", "db", START_US // 1000, "no lines")],
        )
    )
    by_topic = {(topic, key): value for topic, key, value in found}
    ended = json.loads(found[0][2] or "")
    assert found[0][:2] == (
        "n.sessions",
        '{"visitor":"00000000000000ff","session_start":"2026-09-21T14:14:00.000Z"}',
    )
    assert (ended["session_end"], ended["funnel_step"]) == ("2026-09-21T14:14:00.001Z", 1)
    assert by_topic["n.visits", '{"visitor":"0000000000000007"}'] is None
    assert json.loads(by_topic["n.visits", '{"visitor":"00000000000000ff"}'] or "") == {
        **ended,
        "final": False,
    }
    [funnel] = [json.loads(value or "") for topic, _, value in found if topic == "n.funnels"]
    assert (funnel["visits"], [each["visits"] for each in funnel["steps"]]) == (3, [2, 1])
    assert sum(topic == "n.alerts" for topic, _, _ in found) == 1
    assert to_batch(found).num_rows == len(found)
    assert to_batch([]).num_rows == 0


def test_an_anomaly_says_what_is_usual(records: Callable[[Changes], list[Record]]) -> None:
    alert = AnomalyAlert(
        "anomaly", ("host", "db", "cpu"), START_US, 0.9, Range(0.5, 0.25, 0.75), "0.9, usually 0.5"
    )
    [(topic, key, value)] = records(Changes(anomalies=[alert]))
    assert (topic, json.loads(value or "")) == (
        "n.alerts",
        {
            **json.loads(key),
            "kind": "anomaly",
            "subject": "host/db/cpu",
            "since": "2026-09-21T14:14:00.000Z",
            "text": "0.9, usually 0.5",
            "output": "host",
            "name": "db",
            "measure": "cpu",
            "value": 0.9,
            "expected": 0.5,
            "expected_low": 0.25,
            "expected_high": 0.75,
        },
    )


def test_half_of_the_last_digit_is_rounded_up() -> None:
    assert per_second(1, 16_000) == 0.063
    assert per_second(2, 60_000) == 0.033


@pytest.mark.slow
def test_times_are_written_as_spark_writes_them(spark: "SparkSession") -> None:
    times = [0, 1, -1, START_US, START_US + 999, START_US + 1000]
    for zone in ("UTC", "Europe/Berlin", "Asia/Kolkata", "America/New_York"):
        spark.conf.set("spark.sql.session.timeZone", zone)
        rows = spark.createDataFrame([(each,) for each in times], "at long").selectExpr(
            "to_json(struct(timestamp_micros(at) AS at)) AS text"
        )
        found = [json.loads(row.text)["at"] for row in rows.collect()]
        assert found == [json_time(each, ZoneInfo(zone)) for each in times]


def test_the_first_moment_of_all_years_can_be_written_in_any_zone() -> None:
    text = json_time(-62_135_596_800_000_000, ZoneInfo("America/New_York"))
    assert text == "0001-01-01T00:00:00.000Z"
