"""Whether topics and tables of a pipeline agree with a plain reading of the same lines.

Everything is read back and compared with `plain_reading`: dead letters, live and closed
windows, visits, funnels, tables. What is wrong comes back as sentences; an empty list is agreement.
"""

import json
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from millstream.ingest import log_lines
from millstream.ingest.traffic import TrafficLine
from millstream.pipeline import outputs
from millstream.pipeline.outputs import table_path
from millstream.pipeline.spec import Spec
from millstream.warehouse import EVENTS, RAW
from millstream.warehouse.reading import table_dataset
from tests.pipeline.plain_reading import WINDOW_MS, PlainResults, read_plainly

SPEC = """
name = "{name}"
bootstrap = "{bootstrap}"
{settings}
[input]
topics = ["{topic}"]
[windows]
session_gap = "1 minute"
counters = ["served"]
"""
# So much after the others that the watermark passes all windows and visits before it.
CLOSING_MS = 20 * 60 * 1000
Place = tuple[int, int]


def send(bootstrap: str, topic: str, lines: list[TrafficLine]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for line in lines:
        producer.produce(topic, line.data, key=line.source, timestamp=line.time_ms)
        producer.poll(0)
    assert producer.flush(30) == 0


def closing_line(lines: list[TrafficLine]) -> TrafficLine:
    later_ms = lines[-1].time_ms + CLOSING_MS
    return TrafficLine(later_ms, "db-1/health", log_lines.logfmt(later_ms, host="db-1"))


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


def disagreements(spec: Spec, lines: list[TrafficLine]) -> list[str]:
    """After all of `lines`, of which the last is a closing line, went through."""
    plain = plain_results(spec, lines)
    closed = plain.before(plain.newest_ms - spec.watermark_delay_ms)
    return [
        *_wrong_windows("final", _once(spec, outputs.FINAL), closed),
        *_wrong_windows("live", list(newest(spec, outputs.LIVE).values()), plain),
        *_wrong_visits(_once(spec, outputs.SESSIONS), plain),
        *_wrong_funnels(list(newest(spec, outputs.FUNNELS).values()), plain),
        *_wrong_tables(spec, plain, closed),
    ]


def plain_results(spec: Spec, lines: list[TrafficLine]) -> PlainResults:
    return read_plainly(
        lines, ahead_ms=spec.ahead_ms, late_ms=spec.late_ms, gap_ms=spec.session_gap_ms
    )


def _once(spec: Spec, output: outputs.Output) -> list[dict[str, Any]]:
    """Every record of a topic in which no key may come twice."""
    return [json.loads(each.value()) for each in read_topic(spec, output)]


def _difference(what: str, found: Mapping[Any, Any], wanted: Mapping[Any, Any]) -> list[str]:
    keys = {key for key in {*found, *wanted} if found.get(key) != wanted.get(key)}
    examples = [f"{key}: {found.get(key)}, not {wanted.get(key)}" for key in sorted(keys)[:3]]
    return [f"{what}: {len(keys)} wrong: {'; '.join(examples)}"] if keys else []


# -- windows ---------------------------------------------------------------------------------


def _wrong_windows(what: str, rows: list[dict[str, Any]], plain: PlainResults) -> list[str]:
    """Every window is there, once, and right in all it says."""
    keys = Counter((window_ms(row), row["output"], row["name"]) for row in rows)
    twice = {key: count for key, count in keys.items() if count > 1}
    wrong = _difference(f"{what}, more than once", twice, {})
    counts = {(window_ms(row), row["output"], row["name"]): row["count"] for row in rows}
    wanted = {
        **{(window, "input", "all"): count for window, count in plain.input.items()},
        **{(window, "host", name): count for (window, name), count in plain.hosts.items()},
        **{(window, "service", name): count for (window, name), count in plain.services.items()},
        **{(window, "site", "all"): count for window, count in plain.views.items()},
    }
    wrong += _difference(f"{what}, count", counts, wanted)
    if wrong:
        return wrong
    return [f"{what}: {text}" for row in rows for text in wrong_details(row, plain)][:5]


def window_ms(row: dict[str, Any]) -> int:
    return round(datetime.fromisoformat(row["window_start"]).timestamp() * 1000)


def wrong_details(row: dict[str, Any], plain: PlainResults) -> list[str]:
    """What a window says beside its count; estimates must lie within the bound they name."""
    window, name = window_ms(row), row["name"]
    wrong: list[str] = []
    if row["output"] == "service":
        errors = plain.service_errors[window, name]
        if row["errors"] != errors:
            wrong.append(f"{row['errors']} errors, not {errors}")
        wrong += wrong_percentiles(row, sorted(plain.durations[window, name]))
    if row["output"] == "host":
        wrong += wrong_growth(row.get("served"), plain.growth.get((window, name)))
    if row["output"] == "site":
        top = [count for _, count in plain.pages[window].most_common(10)]
        if [each["count"] for each in row["top_pages"]] != top:
            wrong.append(f"top pages {row['top_pages']}, not {top}")
        visitors = len(plain.visitors[window])
        # Of 15,000 estimates one is off by more than four standard deviations.
        bound = max(1, 4 * row["visitors_relative_sd"] * visitors) * (not row["final"])
        if abs(row["visitors"] - visitors) > bound:
            wrong.append(f"{row['visitors']} visitors, not {visitors}")
    return [f"{window} {row['output']} {name}: {text}" for text in wrong]


def wrong_growth(found: dict[str, float] | None, wanted: tuple[float, float] | None) -> list[str]:
    told = None if found is None else (found["increase"], round(found["per_second"], 6))
    if wanted is not None:
        wanted = (wanted[0], round(wanted[1], 6))
    return [] if told == wanted else [f"growth {told}, not {wanted}"]


def wrong_percentiles(row: dict[str, Any], values: list[float]) -> list[str]:
    wrong = []
    for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        bound = row["percentile_rank_error"] * len(values) + 1
        rank = share * len(values)
        lowest = values[max(0, int(rank - bound) - 1)]
        highest = values[min(len(values) - 1, int(rank + bound))]
        if not lowest <= row[f"duration_ms_{name}"] <= highest:
            wrong.append(f"{name} {row[f'duration_ms_{name}']}, not {lowest} to {highest}")
    return wrong


# -- visits and tables -----------------------------------------------------------------------


def _wrong_visits(rows: list[dict[str, Any]], plain: PlainResults) -> list[str]:
    def time_ms(text: str) -> int:
        return round(datetime.fromisoformat(text).timestamp() * 1000)

    found = Counter(
        (time_ms(row["session_start"]), time_ms(row["session_end"]), row["views"])
        for row in rows
        if row["final"]
    )
    return _difference("visits (start, end, views)", found, plain.visits)


def _wrong_funnels(rows: list[dict[str, Any]], plain: PlainResults) -> list[str]:
    """Every visit counts in the window in which it began."""
    # A window keeps its record after a late view has moved the start of its only visit.
    found = {window_ms(row): row["visits"] for row in rows if row["visits"]}
    wanted: Counter[int] = Counter()
    for (start_ms, _, _), count in plain.visits.items():
        wanted[start_ms - start_ms % WINDOW_MS] += count
    return _difference("visits of funnels", found, wanted)


def _wrong_tables(spec: Spec, plain: PlainResults, closed: PlainResults) -> list[str]:
    """Tables and dead letters: every record once, as what it is."""
    raw = table_dataset(table_path(spec, RAW)).to_table().to_pylist()
    events = table_dataset(table_path(spec, EVENTS)).to_table().to_pylist()
    dead = [dict(each.headers()) for each in read_topic(spec, outputs.DEAD)]
    good = [row for row in events if row["problem"] is None]
    of_dead = Counter((int(each["partition"]), int(each["offset"])) for each in dead)
    of_good = _places(good)
    of_raw = _places(raw)
    reasons = Counter(each["reason"].decode() for each in dead)
    flags = Counter(row["problem"] for row in events if row["problem"] is not None)
    windows = Counter(_window_of(row) for row in good)
    services = Counter((_window_of(row), row["service"]) for row in good if row["service"])
    return [
        *_difference("records in the table of lines", of_raw, dict.fromkeys(of_raw, 1)),
        *_difference("lines in all", {"": of_raw.total()}, {"": plain.good + plain.dead.total()}),
        # A window's events and the dead letters together are the input, none of it twice.
        *_difference("events and dead letters", of_good + of_dead, of_raw),
        *_difference("dead letters", reasons, plain.dead),
        *_difference("flags", flags, {k: n for k, n in plain.dead.items() if k != "unparsable"}),
        *_difference("events of windows", windows, plain.input),
        *_difference("events of services", services, plain.services),
        *_difference("closed windows", {k: windows[k] for k in closed.input}, closed.input),
    ]


def _places(rows: list[dict[str, Any]]) -> Counter[Place]:
    return Counter((row["partition"], row["offset"]) for row in rows)


def _window_of(row: dict[str, Any]) -> int:
    return round(row["event_time"].timestamp() * 1000) // WINDOW_MS * WINDOW_MS
