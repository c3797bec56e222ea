"""Client quotas: which one applies to a client, how long a client that exceeds it must wait, and
the longest wait.

Rates are measured as in Kafka: the sum of the last samples, divided by the time they cover. A
client that exceeds its rate is muted until the average is back at the limit. Time is passed in,
in seconds of a monotonic clock.
"""

import ipaddress
import math
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from millstream.errors import KafkaCode, KafkaError
from millstream.lazy_dataclass import dataclass

PRODUCE: Final = "producer_byte_rate"
FETCH: Final = "consumer_byte_rate"
REQUEST_TIME: Final = "request_percentage"
MUTATIONS: Final = "controller_mutation_rate"
CONNECTIONS: Final = "connection_creation_rate"

CLIENT_QUOTAS: Final = (PRODUCE, FETCH, REQUEST_TIME, MUTATIONS)
IP_QUOTAS: Final = (CONNECTIONS,)

DEFAULT: Final = ""

# A client with a very small quota and a large request would wait for days. In milliseconds, such a
# wait may also not fit into a response.
WAIT_SECONDS_MAX: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Limit:
    """A quota, and which clients share it: all of a user, all of a client id, or of both."""

    rate: float
    user: str | None
    client_id: str | None


# By user and client id; None: it does not count, empty: the default.
Lookup = Callable[[str | None, str | None], Mapping[str, str]]


def find_limit(name: str, user: str, client_id: str, options_of: Lookup) -> Limit | None:
    """The most specific quota, in Kafka's order; None without one."""
    for wanted_user, wanted_client in (
        (user, client_id),
        (user, DEFAULT),
        (user, None),
        (DEFAULT, client_id),
        (DEFAULT, DEFAULT),
        (DEFAULT, None),
        (None, client_id),
        (None, DEFAULT),
    ):
        rate = options_of(wanted_user, wanted_client).get(name)
        if rate is not None:
            return Limit(
                float(rate),
                None if wanted_user is None else user,
                None if wanted_client is None else client_id,
            )
    return None


def capped_wait(name: str, wait: float, *, sample_seconds: float) -> float:
    """The wait of a client over this quota: an hour at most, for request time one sample."""
    longest = min(sample_seconds, WAIT_SECONDS_MAX) if name == REQUEST_TIME else WAIT_SECONDS_MAX
    return min(wait, longest)


class RateWindow:
    """What was used in the last samples. `size_seconds` is the length of one."""

    __slots__ = ("_count", "_samples", "_size", "_total")

    def __init__(self, count: int, size_seconds: float) -> None:
        self._count = count
        self._size = size_seconds
        # The start of each sample and its amount, oldest first.
        self._samples: deque[list[float]] = deque()
        self._total = 0.0

    def record(self, amount: float, now: float) -> None:
        self._forget(now)
        if not self._samples or now - self._samples[-1][0] >= self._size:
            self._samples.append([now, 0.0])
        self._samples[-1][1] += amount
        self._total += amount

    def wait_seconds(self, rate: float, now: float) -> float:
        """How long nothing may be used until the average is `rate`; 0 if it is not exceeded."""
        self._forget(now)
        covered = self._covered(now)
        if rate <= 0:
            return covered
        return max(self._total / rate - covered, 0.0)

    def _covered(self, now: float) -> float:
        """At least all samples but one: a client that begins may use what it did not."""
        least = max(self._count - 1, 1) * self._size
        elapsed = now - self._samples[0][0] if self._samples else 0.0
        whole = math.floor(elapsed / self._size)
        return elapsed + max(least / self._size - whole, 0) * self._size

    def _forget(self, now: float) -> None:
        oldest = now - self._count * self._size
        while self._samples and self._samples[0][0] <= oldest:
            self._total -= self._samples.popleft()[1]
        if not self._samples:
            self._total = 0.0


class TokenBucket:
    """Changes of the cluster: a burst may use what the whole window allows (KIP-599)."""

    __slots__ = ("_at", "_tokens")

    def __init__(self) -> None:
        # None until the first use: then it is full.
        self._tokens: float | None = None
        self._at = 0.0

    def _fill(self, rate: float, burst: float, now: float) -> float:
        if self._tokens is None:
            self._tokens = burst
        self._tokens = min(burst, self._tokens + rate * max(now - self._at, 0.0))
        self._at = now
        return self._tokens

    def wait_seconds(self, rate: float, burst: float, now: float) -> float:
        tokens = self._fill(rate, burst, now)
        return 0.0 if tokens >= 0 else -tokens / rate

    def take(self, amount: int, rate: float, burst: float, now: float) -> None:
        self._tokens = self._fill(rate, burst, now) - amount


def checked_quotas(changes: Mapping[str, float | None], *, is_ip: bool) -> dict[str, str | None]:
    """Changes of an entity's quotas as they are stored; None removes one. Raises KafkaError."""
    allowed = IP_QUOTAS if is_ip else CLIENT_QUOTAS
    stored: dict[str, str | None] = {}
    for name, value in changes.items():
        if name not in allowed:
            known = ", ".join(allowed)
            raise KafkaError(KafkaCode.INVALID_REQUEST, f"unknown quota {name!r}; use {known}")
        if value is None:
            stored[name] = None
        elif not math.isfinite(value) or value < 0 or (value == 0 and not is_ip):
            least = "at least 0" if is_ip else "above 0"
            raise KafkaError(KafkaCode.INVALID_REQUEST, f"quota {name} must be {least}: {value}")
        elif name != REQUEST_TIME and name != MUTATIONS and value != int(value):
            raise KafkaError(KafkaCode.INVALID_REQUEST, f"quota {name} is a whole number: {value}")
        else:
            stored[name] = str(int(value)) if value == int(value) else str(value)
    return stored


def check_address(text: str) -> None:
    """Raises KafkaError."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        raise KafkaError(KafkaCode.INVALID_REQUEST, f"{text!r} is not an IP address") from None
