"""A made-up web site: visitors, services and hosts, the same every time for the same seed.

Visitors arrive, walk from page to page as people do, and leave; each page asks services;
hosts tell their health. Now and then a crowd comes, a service fails or slows down, a host
falls silent. Everything is drawn from one seeded generator in the order of event time, so a
seed and a start make one endless sequence of lines.

Knows no clock: the sender of the lines keeps their pace.
"""

import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final

from millstream.ingest import log_lines

WEB_HOSTS: Final = ("web-1", "web-2")
APP_HOSTS: Final = ("app-1", "app-2")
HOSTS: Final = (*WEB_HOSTS, *APP_HOSTS, "db-1")
_HEALTH_EVERY_MS: Final = 5_000
_INCIDENT_EVERY_MS: Final = 45_000
_INCIDENT_MS: Final = 30_000
_CROWD_FACTOR: Final = 4.0
# A visit causes about this many lines.
_LINES_PER_VISIT: Final = 9.0

# From a page to the next, with weights; "" leaves.
_WALK: Final[dict[str, dict[str, float]]] = {
    "/": {"/search": 5, "/product": 3, "/about": 0.5, "": 2},
    "/search": {"/product": 6, "/search": 2, "": 2},
    "/product": {"/cart": 2.5, "/product": 3, "/search": 2, "": 3},
    "/cart": {"/checkout": 4, "/product": 2, "": 3},
    "/checkout": {"/thanks": 6, "/cart": 1, "": 2},
    "/thanks": {"": 6, "/": 1},
    "/about": {"/": 2, "": 3},
}
FUNNEL: Final = ("/product", "/cart", "/checkout", "/thanks")
# What a page asks: service, and its usual latency in ms.
_CALLS: Final[dict[str, tuple[tuple[str, float], ...]]] = {
    "/": (("catalog", 12),),
    "/search": (("search", 35),),
    "/product": (("catalog", 12), ("reviews", 20)),
    "/cart": (("cart", 9),),
    "/checkout": (("cart", 9), ("payment", 110)),
    "/thanks": (("payment", 60),),
    "/about": (),
}
_AGENTS: Final = (
    "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/140.0 Safari/537.36",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 19_0 like Mac OS X) AppleWebKit/605.1.15 Mobile/15E148",
    'crawler/2.1 (+https://crawler.example/about; \\"polite\\")',
)
_SYSTEM: Final = (
    ("sshd", 6, "Accepted publickey for deploy from 10.0.0.7 port 50122 ssh2"),
    ("cron", 6, "(root) CMD (run-parts /etc/cron.hourly)"),
    ("kernel", 4, "TCP: request_sock_TCP: Possible SYN flooding on port 443. Sending cookies."),
    ("systemd", 5, "Started Daily apt upgrade and clean activities."),
)
_TALK_EVERY_MS: Final = 700
# What programs say about their work, with weights. Each {} is a number.
_TALK: Final[dict[str, float]] = {
    "job {} finished in {} ms": 9,
    "cache miss for product {}": 7,
    "session {} began, {} are open": 6,
    "pool lent connection {} after {} ms": 4,
    "sent mail {} to customer {}": 3,
    "reindexed {} products in {} ms": 1,
    "job {} was retried: lock held by job {}": 0.6,
}
_TALK_IN_TROUBLE: Final = "gateway timed out after {} ms, attempt {}"


@dataclass(slots=True)
class TrafficLine:
    time_ms: int
    # `host/log`: the record's key, from which the format is known.
    source: str
    data: bytes


@dataclass(slots=True)
class _Incident:
    kind: str  # "errors", "slow", "crowd" or "silent"
    target: str
    end_ms: int


@dataclass(slots=True)
class _Visit:
    address: str
    user: str | None
    agent: str
    host: str
    page: str
    referrer: str


class Site:
    """`for line in Site(seed=1, start_ms=now, lines_per_second=100).lines():`"""

    def __init__(self, *, seed: int, start_ms: int, lines_per_second: float) -> None:
        self._random = Random(seed)
        self._start_ms = start_ms
        self._visits_per_ms = lines_per_second / _LINES_PER_VISIT / 1000
        self._queue: list[tuple[int, int, Callable[[int], list[TrafficLine]]]] = []
        self._next_number = 0
        self._incident: _Incident | None = None
        self._incident_count = 0
        # What each host has served since it started.
        self._served = dict.fromkeys(HOSTS, 0)

    def lines(self) -> Iterator[TrafficLine]:
        """Without end, by event time."""
        self._at(self._start_ms, self._arrive)
        self._at(self._start_ms + _INCIDENT_EVERY_MS, self._begin_incident)
        for index, host in enumerate(HOSTS):
            first_ms = self._start_ms + index * _HEALTH_EVERY_MS // len(HOSTS)
            self._at(first_ms, partial(self._tell_health, host))
        for host in APP_HOSTS:
            self._at(self._start_ms, partial(self._talk, host))
        while True:
            now_ms, _, act = heapq.heappop(self._queue)
            yield from act(now_ms)

    def _at(self, time_ms: int, act: Callable[[int], list[TrafficLine]]) -> None:
        # The number keeps equal times in order, and functions from being compared.
        self._next_number += 1
        heapq.heappush(self._queue, (time_ms, self._next_number, act))

    # -- visitors --------------------------------------------------------------------------

    def _arrive(self, now_ms: int) -> list[TrafficLine]:
        rate = self._visits_per_ms * (_CROWD_FACTOR if self._is_on("crowd", "site") else 1.0)
        # A slow wave stands for the hours of the day.
        rate *= 1 + 0.3 * math.sin((now_ms - self._start_ms) / 60_000)
        self._at(now_ms + max(1, round(self._random.expovariate(rate))), self._arrive)
        # Few come often: the smallest number of three draws.
        number = min(self._random.randrange(20_000) for _ in range(3))
        visit = _Visit(
            address=f"203.{number % 7}.{number // 250 % 250}.{number % 250}",
            user=f"u{number}" if number % 3 else None,
            agent=_AGENTS[number % len(_AGENTS)],
            host=WEB_HOSTS[number % len(WEB_HOSTS)],
            page="/" if self._random.random() < 0.7 else "/product",
            referrer="https://search.example/" if self._random.random() < 0.5 else "-",
        )
        return self._view(now_ms, visit)

    def _view(self, now_ms: int, visit: _Visit) -> list[TrafficLine]:
        random = self._random
        calls = [self._call(now_ms, visit, *call) for call in _CALLS[visit.page]]
        is_failed = any(failed for _, failed in calls)
        status = 502 if is_failed else (404 if random.random() < 0.01 else 200)
        request = f"{'POST' if visit.page == '/checkout' else 'GET'} {self._target(visit.page)}"
        line = log_lines.combined(
            now_ms,
            address=visit.address,
            user=visit.user,
            request=request,
            status=status,
            size_bytes=random.randrange(400, 60_000),
            referrer=visit.referrer,
            agent=visit.agent,
        )
        self._go_on(now_ms, visit, is_failed=is_failed)
        self._served[visit.host] += 1
        access = TrafficLine(now_ms, f"{visit.host}/access", line)
        return [access, *(call for call, _ in calls)]

    def _target(self, page: str) -> str:
        if page == "/product":
            return f"/product/{min(self._random.randrange(300) for _ in range(4))}"
        if page == "/search":
            return f"/search?q=thing+{self._random.randrange(50)}"
        return page

    def _go_on(self, now_ms: int, visit: _Visit, *, is_failed: bool) -> None:
        choices = _WALK[visit.page]
        [page] = self._random.choices(list(choices), list(choices.values()))
        if is_failed and self._random.random() < 0.4:
            page = visit.page
        if not page:
            return
        next_visit = _Visit(
            visit.address,
            visit.user,
            visit.agent,
            visit.host,
            page,
            f"https://shop.example{visit.page}",
        )
        think_ms = round(self._random.lognormvariate(8.3, 0.8))
        self._at(now_ms + think_ms, lambda then_ms: self._view(then_ms, next_visit))

    def _call(
        self, now_ms: int, visit: _Visit, service: str, usual_ms: float
    ) -> tuple[TrafficLine, bool]:
        random = self._random
        took_ms = usual_ms * random.lognormvariate(0, 0.5)
        if self._is_on("slow", service):
            took_ms *= 8
        is_failed = random.random() < (0.35 if self._is_on("errors", service) else 0.004)
        host = APP_HOSTS[random.randrange(len(APP_HOSTS))]
        self._served[host] += 1
        line = log_lines.json_line(
            now_ms,
            service=service,
            host=host,
            path=visit.page,
            status=500 if is_failed else 200,
            duration_ms=round(took_ms, 3),
            level="error" if is_failed else "info",
            user=visit.user or visit.address,
        )
        return TrafficLine(now_ms, f"{host}/requests", line), is_failed

    # -- hosts -----------------------------------------------------------------------------

    def _tell_health(self, host: str, now_ms: int) -> list[TrafficLine]:
        self._at(now_ms + _HEALTH_EVERY_MS, partial(self._tell_health, host))
        if self._is_on("silent", host):
            # It is down, and counts from 0 again.
            self._served[host] = 0
            return []
        random = self._random
        line = log_lines.logfmt(
            now_ms,
            host=host,
            cpu=round(random.betavariate(2, 5), 3),
            memory=round(0.5 + random.random() * 0.1, 3),
            disk=0.43,
            served=self._served[host],
            state="all good",
        )
        lines = [TrafficLine(now_ms, f"{host}/health", line)]
        draw = random.random()
        program, severity, text = _SYSTEM[random.randrange(len(_SYSTEM))]
        if draw < 0.2:
            data = log_lines.rfc5424(
                now_ms, severity=severity, host=host, program=program, text=text
            )
            lines.append(TrafficLine(now_ms, f"{host}/syslog", data))
        elif draw < 0.4:
            data = log_lines.rfc3164(
                now_ms, severity=severity, host=host, program=program, text=text
            )
            lines.append(TrafficLine(now_ms, f"{host}/messages", data))
        return lines

    def _talk(self, host: str, now_ms: int) -> list[TrafficLine]:
        """A message about the host's work; during errors, one that is not heard otherwise."""
        random = self._random
        self._at(now_ms + _TALK_EVERY_MS, partial(self._talk, host))
        if self._is_on("silent", host):
            return []
        is_troubled = self._incident is not None and self._incident.kind == "errors"
        if is_troubled and random.random() < 0.5:
            level, text = "WARN", _TALK_IN_TROUBLE
        else:
            level, text = "INFO", random.choices(list(_TALK), list(_TALK.values()))[0]
        numbers = [random.randrange(1, 10_000) for _ in range(text.count("{}"))]
        data = log_lines.free_text(now_ms, level=level, text=text.format(*numbers))
        return [TrafficLine(now_ms, f"{host}/jobs", data)]

    # -- incidents -------------------------------------------------------------------------

    def _begin_incident(self, now_ms: int) -> list[TrafficLine]:
        self._at(now_ms + _INCIDENT_EVERY_MS, self._begin_incident)
        # In turn, so that a short run sees every kind.
        kind, targets = (
            ("errors", ("payment", "cart", "search")),
            ("silent", HOSTS),
            ("crowd", ("site",)),
            ("slow", ("catalog", "reviews", "payment")),
        )[self._incident_count % 4]
        self._incident_count += 1
        self._incident = _Incident(kind, self._random.choice(targets), now_ms + _INCIDENT_MS)
        self._at(now_ms + _INCIDENT_MS, self._end_incident)
        return []

    def _end_incident(self, now_ms: int) -> list[TrafficLine]:
        self._incident = None
        return []

    def _is_on(self, kind: str, target: str) -> bool:
        incident = self._incident
        return incident is not None and incident.kind == kind and incident.target == target
