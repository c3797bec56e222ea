"""Covers console/pages/pipeline.py, console/pipeline_results.py."""

import json
from datetime import UTC, datetime
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from millstream.console.pages.pipeline import read_home
from millstream.console.pipeline_results import (
    Windows,
    alerts,
    dead_letters,
    funnel,
    parse_status,
    pipeline_names,
    top_templates,
)
from millstream.pipeline.status import PipelineStatus, QueryStatus, write_status
from millstream.records.records import Record
from tests.support.console_node import Browser, ConsoleNode

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def record(value: object, **headers: bytes) -> Record:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return Record(0, 0, None, data, list(headers.items()))


def window(start: str, output: str, name: str, **values: object) -> Record:
    return record({"window_start": start, "output": output, "name": name, **values})


def test_a_pipeline_is_known_by_its_topics() -> None:
    assert pipeline_names(["a.windows", "a.live", "b.windows", "c.live", "d"]) == ["a"]


def test_the_newest_row_of_each_window_is_charted_except_those_that_are_filled_now() -> None:
    first, second, third = (f"2026-01-01T00:00:{at}+00:00" for at in ("00", "10", "20"))
    windows = Windows(
        [
            window(first, "service", "shop", count=1),
            window(first, "service", "shop", count=5),
            window(second, "service", "cart", count=2),
            window(third, "service", "cart", count=1),
            window("not a time", "service", "shop", count=9),
            record(b"\xff not json"),
            record([1]),
            record({"window_start": 5}),
        ]
    )
    chart = windows.chart("title", "service", "count", "count")
    assert len(chart.times) == 2
    assert chart.times[1] - chart.times[0] == 10
    assert chart.series == {"shop": [5.0, None], "cart": [None, 2.0]}
    assert windows.newest == third


def test_the_only_window_is_charted() -> None:
    windows = Windows([window("2026-01-01T00:00:00+00:00", "service", "shop", count=1)])
    assert windows.chart("title", "service", "count", "count").series == {"shop": [1.0]}


def test_top_pages_are_those_of_the_newest_window_that_has_some() -> None:
    start = "2026-01-01T00:00:00+00:00"
    pages = [{"path": "/a", "count": 3}]
    assert Windows([window(start, "site", "site", top_pages=pages)]).top_pages() == [("/a", 3)]
    assert Windows([]).top_pages() == []


def test_an_alert_that_changed_counts_once() -> None:
    row = {"since": "2026-01-01T00:00:00", "kind": "errors", "subject": "shop", "text": "5 %"}
    found = alerts([record(row), record({**row, "text": "9 %"})], 10)
    assert [each.text for each in found] == ["9 %"]


def test_the_funnel_is_the_sum_of_windows() -> None:
    def of(start: str, visits: int, bought: int) -> Record:
        steps = [{"step": "buy", "visits": bought}]
        return record({"window_start": start, "visits": visits, "steps": steps})

    found = funnel([of("1", 5, 0), of("1", 6, 1), of("2", 4, 1)])
    assert [(each.step, each.visits, each.share) for each in found] == [
        ("visits", 10, 1.0),
        ("buy", 2, 0.2),
    ]


def test_templates_are_those_of_the_newest_full_window() -> None:
    rows = [
        record({"window_start": start, "messages": 4, "top": [{"template": start, "count": 1}]})
        for start in ("10", "30", "20")
    ]
    start, [found] = top_templates(rows, 5)
    assert (start, found.template, found.share) == ("20", "20", 0.25)
    assert top_templates(rows[:1], 5)[0] == "10"


def test_templates_that_are_none_are_passed_over() -> None:
    assert top_templates([], 5) == (None, [])
    assert top_templates([record({"window_start": "1", "top": 5})], 5) == (None, [])
    odd = {"window_start": "1", "messages": "x", "top": [7, {"count": None}]}
    [row] = top_templates([record(odd)], 5)[1]
    assert (row.template, row.count, row.share) == ("", 0, 0.0)


def test_dead_letters_by_reason() -> None:
    reasons, rows = dead_letters([record(b"a", reason=b"late"), record(b"\xff", reason=b"late")], 1)
    assert reasons == {"late": 2}
    assert [each.line for each in rows] == ["\ufffd"]


def test_a_status_file_is_read_as_the_pipeline_writes_it(tmp_path: Path) -> None:
    query = QueryStatus("lines", True, 3, 100, 5.5, 2, 900, "2026-01-01T00:00:00Z", 7, 0)
    status = PipelineStatus("p", "2026-01-01T00:00:00+00:00", [query], {"good": 90})
    write_status(tmp_path, status)
    (tmp_path / "tables" / "raw").mkdir(parents=True)
    (tmp_path / "tables" / "raw" / "x.parquet").write_bytes(b"123")
    (tmp_path / "reports" / "daily-2026-01-01").mkdir(parents=True)
    home = read_home(tmp_path, NOW)
    assert home.status is not None
    assert home.status.queries[0].rows == 100
    assert not home.status.is_unheard
    assert [(table.name, table.size_bytes) for table in home.tables] == [("raw", 3)]
    assert home.reports == ["daily-2026-01-01"]
    later = parse_status((tmp_path / "status.json").read_text(), NOW.replace(minute=5))
    assert later is not None
    assert later.is_unheard


def test_a_home_that_is_missing_or_of_another_version_is_empty(tmp_path: Path) -> None:
    assert read_home(tmp_path / "missing", NOW).status is None
    assert parse_status("{}", NOW) is None
    assert parse_status('{"written_at": "x"}', NOW) is None
    assert parse_status("[]", NOW) is None


def test_the_page_without_and_with_a_pipeline(console_node: ConsoleNode, web: Browser) -> None:
    if "shop.live" not in {row["name"] for row in web.api("/topics")["rows"]}:
        assert "No pipeline has written" in web.get("/pipeline").text
    admin = AdminClient({"bootstrap.servers": console_node.bootstrap, "log_level": 0})
    names = ["live", "windows", "alerts", "funnels", "templates", "dead"]
    for created in admin.create_topics([NewTopic(f"shop.{each}", 1, 1) for each in names]).values():
        created.result(30)
    producer = Producer({"bootstrap.servers": console_node.bootstrap, "log_level": 0})
    row = {
        "window_start": "2026-01-01T00:00:00+00:00",
        "output": "service",
        "name": "<script>alert(1)</script>",
        "count": 5,
        "errors": 1,
    }
    producer.produce("shop.live", json.dumps(row))
    for start, counts in (("T00:01", (7, 3)), ("T00:02", (2, 2)), ("T00:00", (1, 1))):
        top = [
            {"template": f"<b>{name}</b> <*>", "count": count, "sample": f"<i>{name} 1</i>"}
            for name, count in zip(("ann", "bob"), counts, strict=True)
        ]
        found = {"window_start": f"2026-01-01{start}:00Z", "messages": 20, "top": top}
        producer.produce("shop.templates", json.dumps(found))
    for kind in ("anomaly", "usual"):
        alert = {"since": start, "kind": kind, "subject": "host/db/cpu", "text": "0.9, usually 0.5"}
        producer.produce("shop.alerts", json.dumps(alert))
    producer.produce("shop.dead", b"bad <line>", headers=[("reason", b"unparsable")])
    assert producer.flush(30) == 0
    console_node.sample()
    view = web.api("/pipeline")
    assert view["name"] == "shop"
    assert view["dead_reasons"] == {"unparsable": 1}
    # Of the newest window.
    assert [(row["count"], row["share"]) for row in view["templates"]] == [(7, 0.35), (3, 0.15)]
    assert [row["kind"] for row in view["alerts"]] == ["usual", "anomaly"]
    text = web.get("/pipeline").text
    assert "<script>alert" not in text
    assert "bad &lt;line&gt;" in text
    assert "&lt;b&gt;ann&lt;/b&gt; &lt;*&gt;" in text
    assert "&lt;i&gt;bob 1&lt;/i&gt;" in text
    assert "0.9, usually 0.5" in text
