"""Whether topics and tables of a pipeline agree with a plain reading of the same lines."""

import json
from collections import Counter
from datetime import datetime
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from deltalake import DeltaTable

from millstream.ingest.traffic import TrafficLine
from millstream.pipeline import outputs
from millstream.pipeline.outputs import table_path
from millstream.pipeline.spec import Spec
from tests.pipeline.plain_reading import WINDOW_MS, PlainResults, read_plainly

SPEC = """
name = "{name}"
bootstrap = "{bootstrap}"
[input]
topics = ["{topic}"]
[windows]
session_gap = "1 minute"
"""


def send(bootstrap: str, topic: str, lines: list[TrafficLine]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for line in lines:
        producer.produce(topic, line.data, key=line.source, timestamp=line.time_ms)
        producer.poll(0)
    assert producer.flush(30) == 0


def read_topic(spec: Spec, output: outputs.Output) -> list[Any]:
    """All records that are committed: value and headers."""
    consumer = Consumer(
        {
            "bootstrap.servers": spec.bootstrap,
            "group.id": "agreement",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    count = spec.state_partitions
    consumer.assign([TopicPartition(output.topic(spec), each, 0) for each in range(count)])
    found: list[Any] = []
    ended = 0
    while ended < count:
        message = consumer.poll(10)
        assert message is not None
        if message.error():
            ended += 1
        else:
            found.append(message)
    consumer.close()
    return found


def newest(spec: Spec, output: outputs.Output) -> dict[bytes, dict[str, Any]]:
    return {each.key(): json.loads(each.value()) for each in read_topic(spec, output)}


def window_ms(row: dict[str, Any]) -> int:
    return round(datetime.fromisoformat(row["window_start"]).timestamp() * 1000)


def check_windows(rows: list[dict[str, Any]], plain: PlainResults, *, is_final: bool) -> None:
    """Every window that is there is right in all it says."""
    for row in rows:
        window, key = window_ms(row), (window_ms(row), row["name"])
        assert row["final"] == is_final
        if row["output"] == "input":
            assert row["count"] == plain.input[window]
        if row["output"] == "service":
            assert row["count"] == plain.services[key]
            assert row["errors"] == plain.service_errors[key]
            check_percentiles(row, sorted(plain.durations[key]))
        if row["output"] == "site":
            assert row["count"] == plain.views[window]
            top = plain.pages[window].most_common()
            assert [each["count"] for each in row["top_pages"]] == [n for _, n in top[:10]]
            visitors = len(plain.visitors[window])
            if is_final:
                assert row["visitors"] == visitors
            else:
                bound = 4 * row["visitors_relative_sd"] * visitors
                assert abs(row["visitors"] - visitors) <= max(1, bound)


def check_percentiles(row: dict[str, Any], values: list[float]) -> None:
    for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        bound = row["percentile_rank_error"] * len(values) + 1
        rank = share * len(values)
        lowest = values[max(0, int(rank - bound) - 1)]
        highest = values[min(len(values) - 1, int(rank + bound))]
        assert lowest <= row[f"duration_ms_{name}"] <= highest


def last_line(lines: list[TrafficLine]) -> TrafficLine:
    """So much later that the watermark passes all windows before it."""
    later_ms = lines[-1].time_ms + 3600 * 1000
    return TrafficLine(later_ms, "db-1/health", b"ts=%d host=db-1" % later_ms)


def check_agreement(spec: Spec, lines: list[TrafficLine]) -> PlainResults:
    """After all of `lines` and the last line went through: every number, nothing twice."""
    plain = read_plainly(lines, ahead_ms=spec.ahead_ms, late_ms=spec.late_ms)
    _check_dead(spec, lines, plain)
    final = list(newest(spec, outputs.FINAL).values())
    assert len(read_topic(spec, outputs.FINAL)) == len(final), "a window was written twice"
    check_windows(final, plain, is_final=True)
    assert sum(r["count"] for r in final if r["output"] == "input") == plain.good
    assert sum(r["count"] for r in final if r["output"] == "site") == plain.views.total()
    live = [
        row for row in newest(spec, outputs.LIVE).values() if window_ms(row) <= lines[-1].time_ms
    ]
    check_windows(live, plain, is_final=False)
    assert sum(r["count"] for r in live if r["output"] == "input") == plain.good
    sessions = newest(spec, outputs.SESSIONS)
    assert len(read_topic(spec, outputs.SESSIONS)) == len(sessions), "a visit was written twice"
    assert sum(each["views"] for each in sessions.values()) == plain.views.total()
    _check_tables(spec, lines, plain)
    return plain


def _check_dead(spec: Spec, lines: list[TrafficLine], plain: PlainResults) -> None:
    dead = read_topic(spec, outputs.DEAD)
    headers = [dict(each.headers()) for each in dead]
    assert Counter(each["reason"].decode() for each in headers) == plain.dead
    places = [(each["topic"], each["partition"], each["offset"]) for each in headers]
    assert len(set(places)) == len(places), "a dead letter was written twice"
    assert len(dead) + plain.good == len(lines)


def _check_tables(spec: Spec, lines: list[TrafficLine], plain: PlainResults) -> None:
    raw = DeltaTable(str(table_path(spec, outputs.RAW))).to_pyarrow_table().to_pylist()
    assert len(raw) == len(lines) + 1
    assert len({(row["topic"], row["partition"], row["offset"]) for row in raw}) == len(raw)
    events = DeltaTable(str(table_path(spec, outputs.EVENTS))).to_pyarrow_table().to_pylist()
    flags = Counter(row["problem"] for row in events)
    assert flags == {
        None: plain.good + 1,
        "ahead": plain.dead["ahead"],
        "late": plain.dead["late"],
    }
    services = Counter(
        (round(row["event_time"].timestamp() * 1000) // WINDOW_MS * WINDOW_MS, row["service"])
        for row in events
        if row["problem"] is None and row["service"] is not None
    )
    assert services == plain.services
