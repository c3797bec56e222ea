"""What live windows estimate lies within the bound that stands beside it.

Covers pipeline/windows.py.
"""

from typing import TYPE_CHECKING, Any

import pytest

from millstream.pipeline.windows import live_windows
from tests.pipeline.agreement import wrong_percentiles
from tests.pipeline.conftest import MakeSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]

ROWS = 30_000
VISITORS = 4_000
PAGES = 700


@pytest.fixture
def window_rows(spark: "SparkSession", make_spec: MakeSpec) -> list[dict[str, Any]]:
    """One minute with more visitors and latencies than fit into what the estimates keep."""
    found: DataFrame = live_windows(_events(spark), make_spec())
    return [row.asDict(recursive=True) for row in found.collect()]


def _events(spark: "SparkSession") -> "DataFrame":
    return spark.range(ROWS, numPartitions=2).selectExpr(
        "CAST(NULL AS string) AS problem",
        "timestamp'2026-03-01 12:00:00' + make_interval(0, 0, 0, 0, 0, 0, id % 60) AS event_time",
        "'web-1' AS host",
        "'shop' AS service",
        "'combined' AS format",
        f"concat('visitor-', id % {VISITORS}) AS visitor",
        # Low numbers are asked for more often than high ones, none as often as another.
        f"concat('/page-', CAST(floor({PAGES} * pow(id / {ROWS}, 2)) AS int)) AS path",
        "200 AS status",
        "CAST(NULL AS string) AS level",
        "CAST(1 AS bigint) AS size_bytes",
        "CAST(NULL AS map<string, string>) AS fields",
        f"CAST(pow(pmod(id * 7919, {ROWS}), 2) / 1000 AS double) AS duration_ms",
    )


def test_percentiles_are_off_by_no_more_than_their_rank_error(
    window_rows: list[dict[str, Any]],
) -> None:
    [service] = [row for row in window_rows if row["output"] == "service"]
    durations = sorted(pow(number * 7919 % ROWS, 2) / 1000 for number in range(ROWS))
    assert service["percentile_rank_error"] <= 0.001
    assert wrong_percentiles(service, durations) == []


def test_visitors_are_off_by_no_more_than_four_standard_deviations(
    window_rows: list[dict[str, Any]],
) -> None:
    [site] = [row for row in window_rows if row["output"] == "site"]
    assert site["visitors_relative_sd"] <= 0.02
    assert abs(site["visitors"] - VISITORS) <= 4 * site["visitors_relative_sd"] * VISITORS


def test_top_pages_are_exact_among_as_many_pages_as_are_tracked(
    window_rows: list[dict[str, Any]],
) -> None:
    [site] = [row for row in window_rows if row["output"] == "site"]
    counts: dict[str, int] = {}
    for number in range(ROWS):
        path = f"/page-{int(PAGES * pow(number / ROWS, 2))}"
        counts[path] = counts.get(path, 0) + 1
    wanted = sorted(counts.values(), reverse=True)[:10]
    assert [page["count"] for page in site["top_pages"]] == wanted
    assert all(counts[page["path"]] == page["count"] for page in site["top_pages"])
