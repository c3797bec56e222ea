"""Spark's reports into what a person wants to know."""

from pathlib import Path

from millstream.pipeline.status import (
    PipelineStatus,
    Totals,
    query_status,
    read_status,
    write_status,
)


def report(batch: int, *, rows: int, dropped: int = 0) -> dict[str, object]:
    return {
        "batchId": batch,
        "numInputRows": rows,
        "processedRowsPerSecond": 12.5,
        "durationMs": {"triggerExecution": 800},
        "eventTime": {"watermark": "2026-09-21T14:00:00.000Z"},
        "stateOperators": [
            {"numRowsTotal": 3, "numRowsDroppedByWatermark": dropped},
            {"numRowsTotal": 4, "numRowsDroppedByWatermark": 0},
        ],
    }


def test_a_report_is_counted_once_however_often_it_is_seen() -> None:
    totals = Totals()
    for each in (report(0, rows=5), report(1, rows=7, dropped=2), report(1, rows=7, dropped=2)):
        totals.add(each)
    assert (totals.rows, totals.dropped) == (12, 2)
    found = query_status("live", report(1, rows=7), totals, is_running=True, lag=9, problem=None)
    assert (found.batch, found.rows, found.state_rows, found.dropped) == (1, 12, 7, 2)
    assert (found.batch_ms, found.lag) == (800, 9)


def test_a_query_without_a_report_is_shown_too() -> None:
    found = query_status("live", None, Totals(), is_running=True, lag=None, problem=None)
    assert (found.batch, found.rows, found.watermark) == (-1, 0, None)


def test_what_is_written_down_is_read_again(tmp_path: Path) -> None:
    assert read_status(tmp_path) is None
    query = query_status("live", None, Totals(), is_running=True, lag=None, problem="x")
    status = PipelineStatus("site", "now", 5, [query], {"good": 3})
    write_status(tmp_path, status)
    assert read_status(tmp_path) == status
