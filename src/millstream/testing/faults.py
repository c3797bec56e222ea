"""Faults that a test orders: errors, delays and broken connections, by request.

Rules are asked in the order they were made; the first that matches a request counts. Chance comes
from a seed, so a run can be repeated.
"""

import random
from collections.abc import Callable, Iterable
from dataclasses import field
from typing import Final

from millstream.broker.requests.routes import served
from millstream.errors import KafkaCode
from millstream.lazy_dataclass import dataclass

_ALWAYS: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """What rules look at."""

    api: str
    client_id: str
    # Those that the request names, if a rule needs them.
    topics: Callable[[], Iterable[str]]


@dataclass(slots=True)
class Fault:
    """One rule, and how often it has been applied."""

    api: str | None
    topic: str | None
    client_id: str | None
    left: int
    probability: float
    error: KafkaCode | None = None
    delay_ms: float = 0.0
    drops_connection: bool = False
    # Of the answer, before the connection is dropped.
    after_bytes: int = 0
    applied: int = 0

    def matches(self, request: RequestFacts) -> bool:
        if self.left <= 0 or (self.api is not None and self.api != normalised(request.api)):
            return False
        if self.client_id is not None and self.client_id != request.client_id:
            return False
        return self.topic is None or self.topic in request.topics()

    def __str__(self) -> str:
        what = "connection dropped" if self.drops_connection else ""
        if self.error is not None:
            what = self.error.name
        elif self.delay_ms:
            what = f"delayed by {self.delay_ms:g} ms"
        where = f" of {self.topic}" if self.topic else ""
        return f"{self.api or 'any request'}{where}: {what}, {self.applied} times"


@dataclass(slots=True)
class Faults:
    seed: int = 0
    rules: list[Fault] = field(default_factory=list)
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def fail(
        self,
        api: str | None = None,
        *,
        error: str | KafkaCode,
        times: int = _ALWAYS,
        topic: str | None = None,
        client_id: str | None = None,
        p: float = 1.0,
    ) -> Fault:
        """Answer with this error, by Kafka's name, and do nothing."""
        return self._add(api, topic, client_id, times, p, error=_code(error))

    def delay(
        self,
        api: str | None = None,
        *,
        ms: float,
        times: int = _ALWAYS,
        topic: str | None = None,
        client_id: str | None = None,
        p: float = 1.0,
    ) -> Fault:
        """Handle the request this much later; requests behind it on the connection wait."""
        return self._add(api, topic, client_id, times, p, delay_ms=ms)

    def drop_connection(
        self,
        api: str | None = None,
        *,
        times: int = 1,
        topic: str | None = None,
        client_id: str | None = None,
        p: float = 1.0,
        after_bytes: int = 0,
    ) -> Fault:
        """Close the connection instead of handling the request; with `after_bytes`, handle it and
        send only so much of the answer."""
        rule = self._add(api, topic, client_id, times, p, drops_connection=True)
        rule.after_bytes = after_bytes
        return rule

    def disk_full(self, *, times: int = _ALWAYS) -> Fault:
        """Records are refused as if the disk had no room."""
        return self.fail("Produce", error=KafkaCode.KAFKA_STORAGE_ERROR, times=times)

    def clear(self) -> None:
        self.rules.clear()

    def choose(self, request: RequestFacts) -> Fault | None:
        """The fault of this request, which then counts as applied."""
        for rule in self.rules:
            if rule.matches(request) and self._random.random() < rule.probability:
                rule.left -= 1
                rule.applied += 1
                return rule
        return None

    def _add(
        self,
        api: str | None,
        topic: str | None,
        client_id: str | None,
        times: int,
        probability: float,
        *,
        error: KafkaCode | None = None,
        delay_ms: float = 0.0,
        drops_connection: bool = False,
    ) -> Fault:
        name = None if api is None else known_api(api)
        if not 0 <= probability <= 1:
            raise ValueError(f"p is between 0 and 1, not {probability}")
        if delay_ms < 0:
            raise ValueError(f"ms is not below 0, as {delay_ms} is")
        rule = Fault(name, topic, client_id, times, probability, error, delay_ms, drops_connection)
        self.rules.append(rule)
        return rule


def normalised(api: str) -> str:
    """`Produce`, `produce` and `CREATE_TOPICS` as `produce` and `createtopics`."""
    return api.replace("_", "").lower()


def known_api(name: str) -> str:
    """As rules have it. Raises ValueError for one that does not exist."""
    wanted = normalised(name)
    if wanted not in {normalised(api.name) for api in served().values()}:
        raise ValueError(f"there is no request {name!r}; write it as Kafka does, such as Produce")
    return wanted


def _code(error: str | KafkaCode) -> KafkaCode:
    if isinstance(error, KafkaCode):
        return error
    try:
        return KafkaCode[error]
    except KeyError:
        raise ValueError(f"Kafka has no error named {error!r}") from None
