"""`millstream report`: which period it is of, and what is said where something is missing."""

import importlib.util
from datetime import date, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import click
import pytest
from click.testing import CliRunner

from millstream.cli.failure import CommandFailed
from millstream.cli.report import chosen_period, report
from millstream.cli.spark_process import spark_session
from millstream.pipeline.reporting.periods import Kind
from millstream.pipeline.spec import Spec, parse_spec

needs_tables = pytest.mark.skipif(
    importlib.util.find_spec("deltalake") is None, reason="deltalake is not installed"
)


@pytest.fixture
def spec(tmp_path: Path) -> Spec:
    return parse_spec("timezone = 'Asia/Tokyo'", folder=tmp_path)


# In Tokyo it is already the first of October.
NOW = datetime(2026, 9, 30, 20, tzinfo=ZoneInfo("UTC"))


@pytest.mark.parametrize(
    ("kind", "day", "name"),
    [
        (Kind.DAILY, None, "daily-2026-09-30"),
        (Kind.WEEKLY, None, "weekly-2026-W39"),
        (Kind.MONTHLY, None, "monthly-2026-09"),
        (Kind.WEEKLY, "2026-09-27", "weekly-2026-W39"),
        (Kind.MONTHLY, "2026-02-03", "monthly-2026-02"),
    ],
)
def test_without_a_date_it_is_the_last_period_that_is_over(
    spec: Spec, kind: Kind, day: str | None, name: str
) -> None:
    assert chosen_period(spec, kind, day, now=NOW).name == name


def test_a_date_that_is_none_is_said(spec: Spec) -> None:
    with pytest.raises(click.UsageError, match="YYYY-MM-DD, not 'monday'"):
        chosen_period(spec, Kind.DAILY, "monday", now=NOW)


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("day", ["0001-01-01", "1969-12-31", "9999-12-31"])
def test_a_date_at_an_end_of_the_calendar_is_refused(spec: Spec, kind: Kind, day: str) -> None:
    with pytest.raises(click.UsageError, match=f"since 1970, not '{day}'"):
        chosen_period(spec, kind, day, now=NOW)


@needs_tables
@pytest.mark.parametrize("kind", [kind.value for kind in Kind])
def test_without_a_table_it_says_what_makes_one(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text("name = 'shop'")
    day = date(2026, 9, 21).isoformat()
    result = CliRunner().invoke(report, [kind, str(file), "--date", day])
    assert isinstance(result.exception, CommandFailed)
    assert "millstream pipeline run makes it" in str(result.exception)


def test_iceberg_tables_need_their_library_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = parse_spec("[warehouse]\nformat = 'iceberg'", folder=tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with (
        pytest.raises(CommandFailed, match=r"millstream\[pipeline,iceberg\]"),
        spark_session(spec, master="local[1]"),
    ):
        pass
