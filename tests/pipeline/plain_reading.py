"""The same analysis in plain Python, line by line, written without the pipeline's parser."""

import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import pairwise
from typing import TypeVar

from millstream.ingest.traffic import TrafficLine

WINDOW_MS = 60_000
K = TypeVar("K", int, tuple[int, str])
Visit = tuple[int, int, int]


@dataclass
class PlainResults:
    good: int = 0
    newest_ms: int = 0
    dead: Counter[str] = field(default_factory=Counter)
    # By window start in ms; then by name where there are names.
    input: Counter[int] = field(default_factory=Counter)
    hosts: Counter[tuple[int, str]] = field(default_factory=Counter)
    services: Counter[tuple[int, str]] = field(default_factory=Counter)
    service_errors: Counter[tuple[int, str]] = field(default_factory=Counter)
    durations: dict[tuple[int, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    views: Counter[int] = field(default_factory=Counter)
    visitors: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    pages: dict[int, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    # When each visitor looked at something; and what visits that makes: start, end, views.
    view_times: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    visits: Counter[Visit] = field(default_factory=Counter)
    # What a source says to have served, by time; and the increase and rate that makes of a host.
    served: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    growth: dict[tuple[int, str], tuple[float, float]] = field(default_factory=dict)

    def before(self, time_ms: int) -> "PlainResults":
        """With only the windows that end by then."""

        def earlier(counts: Counter[K]) -> Counter[K]:
            def start_ms(key: K) -> int:
                return key if isinstance(key, int) else key[0]

            return Counter(
                {key: n for key, n in counts.items() if start_ms(key) + WINDOW_MS <= time_ms}
            )

        return replace(
            self,
            input=earlier(self.input),
            hosts=earlier(self.hosts),
            services=earlier(self.services),
            views=earlier(self.views),
        )


def read_plainly(
    lines: list[TrafficLine], *, ahead_ms: int, late_ms: int, gap_ms: int
) -> PlainResults:
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
            results.newest_ms = max(results.newest_ms, event_ms)
            _count(results, line.source, text, event_ms)
    for times in results.view_times.values():
        results.visits.update(_visits(sorted(times), gap_ms))
    for source, samples in results.served.items():
        _grow(results, source.split("/")[0], samples)
    return results


def _count(results: PlainResults, source: str, text: str, event_ms: int) -> None:
    window = event_ms - event_ms % WINDOW_MS
    results.input[window] += 1
    results.hosts[window, source.split("/")[0]] += 1
    if found := re.search(r" served=(\d+)", text):
        results.served[source].append((event_ms, int(found[1])))
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
        visitor = user if user != "-" else address + agent
        results.views[window] += 1
        results.visitors[window].add(visitor)
        results.pages[window][target.split("?")[0]] += 1
        results.view_times[visitor].append(event_ms)


def _grow(results: PlainResults, host: str, samples: list[tuple[int, int]]) -> None:
    """Only one source of a host says it."""
    # The sort is stable: of equal times, the last in the topic stays last.
    last = {at // 1000: (at, value) for at, value in sorted(samples, key=lambda each: each[0])}
    took: Counter[tuple[int, str]] = Counter()
    for (before_ms, before), (at_ms, value) in pairwise(last.values()):
        window = (at_ms - at_ms % WINDOW_MS, host)
        took[window] += at_ms - before_ms
        increase = results.growth.get(window, (0.0, 0.0))[0]
        increase += value - before if value >= before else value
        results.growth[window] = (increase, increase * 1000 / took[window])


def _visits(times: list[int], gap_ms: int) -> list[Visit]:
    found: list[Visit] = []
    for at in times:
        if found and at - found[-1][1] < gap_ms:
            start, _, views = found[-1]
            found[-1] = (start, at, views + 1)
        else:
            found.append((at, at, 1))
    return found


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
