"""A run's progress into what a person wants to know."""

from collections import Counter
from pathlib import Path

from millstream.pipeline.progress import Progress, Watched
from millstream.pipeline.status import PipelineStatus, query_status, read_status, write_status

REPORT = {"batchId": 1, "numInputRows": 6, "durationMs": {"triggerExecution": 800}}


def test_lines_are_shown_not_what_spark_calls_rows() -> None:
    watched = Watched()
    watched.set(
        Progress(
            lines=Counter(good=11, late=1),
            batch=1,
            batch_lines=10,
            state_rows=7,
            dropped=2,
            watermark_us=1_000_000,
        )
    )
    found = query_status("lines", REPORT, watched.get(), is_running=True, lag=9, problem=None)
    assert (found.batch, found.rows, found.state_rows, found.dropped) == (1, 12, 7, 2)
    assert (found.batch_ms, found.rows_per_second, found.lag) == (800, 12.5, 9)
    assert found.watermark == "1970-01-01T00:00:01.000Z"


def test_a_query_without_a_report_is_shown_too() -> None:
    found = query_status("lines", None, Progress(), is_running=True, lag=None, problem=None)
    assert (found.batch, found.rows, found.rows_per_second, found.watermark) == (-1, 0, 0.0, None)


def test_what_is_written_down_is_read_again(tmp_path: Path) -> None:
    assert read_status(tmp_path) is None
    query = query_status("lines", None, Progress(), is_running=True, lag=None, problem="x")
    status = PipelineStatus("site", "now", [query], {"good": 3})
    write_status(tmp_path, status)
    assert read_status(tmp_path) == status
