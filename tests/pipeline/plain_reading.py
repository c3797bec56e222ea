"""The same analysis in plain Python, line by line, written without the pipeline's parser."""

import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import datetime

from millstream.ingest.traffic import TrafficLine

WINDOW_MS = 60_000


@dataclass
class PlainResults:
    good: int = 0
    dead: Counter[str] = field(default_factory=Counter)
    # By window start in ms; then by name where there are names.
    input: Counter[int] = field(default_factory=Counter)
    services: Counter[tuple[int, str]] = field(default_factory=Counter)
    service_errors: Counter[tuple[int, str]] = field(default_factory=Counter)
    durations: dict[tuple[int, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    views: Counter[int] = field(default_factory=Counter)
    visitors: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    pages: dict[int, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))


def read_plainly(lines: list[TrafficLine], *, ahead_ms: int, late_ms: int) -> PlainResults:
    results = PlainResults()
    for line in lines:
        try:
            text = line.data.decode()
            event_ms = event_time_ms(text, line.time_ms)
        except (ValueError, KeyError, TypeError):
            results.dead["unparsable"] += 1
            continue
        if event_ms > line.time_ms + ahead_ms:
            results.dead["ahead"] += 1
        elif event_ms < line.time_ms - late_ms:
            results.dead["late"] += 1
        else:
            results.good += 1
            _count(results, text, event_ms - event_ms % WINDOW_MS)
    return results


def _count(results: PlainResults, text: str, window: int) -> None:
    results.input[window] += 1
    if text.startswith("{"):
        entry = json.loads(text)
        key = (window, entry["service"])
        results.services[key] += 1
        results.service_errors[key] += entry["status"] >= 500
        results.durations[key].append(entry["duration_ms"])
    elif '"' in text and "] " in text and text[0].isdigit() and "HTTP/" in text:
        address, _, user = text.split(" ")[:3]
        target = text.split('"')[1].split(" ")[1]
        agent = text.split('" "', 1)[1]
        results.views[window] += 1
        results.visitors[window].add(user if user != "-" else address + agent)
        results.pages[window][target.split("?")[0]] += 1


def event_time_ms(text: str, record_ms: int) -> int:
    if text.startswith("{"):
        return _iso_ms(json.loads(text)["ts"])
    if text.startswith("ts="):
        return _iso_ms(text.split(" ")[0][3:])
    if found := re.match(r"\S+ \S+ \S+ \[(.*?)\]", text):
        return round(datetime.strptime(found[1], "%d/%b/%Y:%H:%M:%S %z").timestamp() * 1000)
    if found := re.match(r"<\d+>1 (\S+) ", text):
        return _iso_ms(found[1])
    if found := re.match(r"<\d+>(\w{3} [ \d]\d \d\d:\d\d:\d\d) ", text):
        year = datetime.fromtimestamp(record_ms / 1000).year
        value = datetime.strptime(f"{year} {found[1]} +0000", "%Y %b %d %H:%M:%S %z")
        return round(value.timestamp() * 1000)
    return _iso_ms(text.split(" ")[0])


def _iso_ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)
