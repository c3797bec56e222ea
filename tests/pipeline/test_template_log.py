"""Templates of windows: counted, new, vanished, forgotten."""

import pyarrow as pa
import pytest

from millstream.pipeline import template_log
from millstream.pipeline.skeletons import SCHEMA
from millstream.pipeline.template_log import TemplateAlert, TemplateCount, TemplateLog

WINDOW_US = 60
WATCHED = template_log.WATCHED_WINDOWS
GONE = template_log.GONE_WINDOWS


def table(window: int, **counts: int) -> pa.Table:
    """Of skeletons; blanks are underscores."""
    rows = [
        {
            "window_us": window * WINDOW_US,
            "skeleton": None if name == "others" else name.replace("_", " "),
            "count": count,
            "sample": None if name == "others" else f"sample of {name}",
        }
        for name, count in counts.items()
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def passed(log: TemplateLog, window: int, **counts: int) -> list[TemplateAlert]:
    """A window that comes and is closed."""
    log.add(table(window, **counts), closed_us=(window - 1) * WINDOW_US)
    [_], alerts = log.close(window * WINDOW_US)
    return alerts


def test_skeletons_of_tasks_are_one_template() -> None:
    log = TemplateLog(WINDOW_US, 1)
    rows = pa.concat_tables(
        [
            table(0, user_ann_went_home_early=3, others=2),
            table(0, user_ann_went_home_late=4, bye=1),
        ]
    )
    [open_window] = log.add(rows, closed_us=None)
    top = TemplateCount("user ann went home <*>", 7, "sample of user_ann_went_home_early")
    assert (open_window.top, open_window.messages, open_window.templates) == ([top], 10, 2)
    assert not open_window.is_final
    [closed], alerts = log.close(0)
    assert (closed.is_final, closed.top, alerts) == (True, [top], [])
    # Too late.
    assert log.add(table(0, bye=1), closed_us=0) == []


def test_a_template_is_new_once_after_the_first_windows() -> None:
    log = TemplateLog(WINDOW_US, 5)
    for window in range(WATCHED):
        assert passed(log, window, usual=5) == []
    [alert] = passed(log, WATCHED, usual=5, strange_thing=2)
    assert alert == TemplateAlert(
        "new", "strange thing", WATCHED * WINDOW_US, "2 messages, such as: sample of strange_thing"
    )
    assert passed(log, WATCHED + 1, usual=5, strange_thing=2) == []


def test_a_template_vanishes_once() -> None:
    log = TemplateLog(WINDOW_US, 5)
    for window in range(WATCHED):
        assert passed(log, window, steady=1, usual=1) == []
    alerts = [passed(log, WATCHED + window, usual=1) for window in range(2 * GONE)]
    [alert] = alerts[GONE - 1]
    assert (alert.kind, alert.template) == ("vanished", "steady")
    assert alert.since_us == WATCHED * WINDOW_US
    assert alert.text == "in 30 of 30 windows, and in none since"
    assert sum(map(len, alerts)) == 1


def test_what_comes_now_and_then_does_not_vanish() -> None:
    log = TemplateLog(WINDOW_US, 5)
    alerts = []
    for window in range(3 * WATCHED):
        now_and_then = {"rare": 1} if window % 12 == 0 else {}
        alerts += passed(log, window, usual=1, **now_and_then)
    assert alerts == []


def test_many_new_ones_are_a_few_alerts() -> None:
    log = TemplateLog(WINDOW_US, 5)
    for window in range(WATCHED):
        passed(log, window, usual=5)
    alerts = passed(log, WATCHED, **{f"{name}_{name}": 1 for name in "abcdefghijklmnop"}, z_z=2)
    assert len(alerts) == 10
    assert alerts[0].template == "z z"
    assert alerts[1].text == "1 message, such as: sample of a_a"


def test_there_are_not_more_than_fit_and_old_ones_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(template_log, "TEMPLATES_MAX", 2)
    log = TemplateLog(WINDOW_US, 5)
    [window] = log.add(table(0, a=1, b=1, c=1), closed_us=None)
    assert (window.messages, window.templates) == (3, 2)
    log.close(0)
    week = 7 * 86_400_000_000 // WINDOW_US
    passed(log, week + 1, b=1)
    assert (len(log), set(log.occurrences)) == (1, {1})
    [window] = log.add(table(week + 2, c=1), closed_us=None)
    assert (window.templates, len(log)) == (1, 2)
