"""How much of its quotas each client has used; the rules are in `security.quotas`.

The quotas come from the options of users, client ids and addresses in the coordination store, and
follow their changes. Each node measures its own clients, as in Kafka.
"""

import hashlib
import sys
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Final, TypeVar

from millstream.cluster.client_entities import DEFAULT_NAME, ClientEntities, ClientEntity
from millstream.errors import KafkaCode, KafkaError
from millstream.lazy_dataclass import dataclass
from millstream.model import Principal
from millstream.security.quotas import (
    CLIENT_QUOTAS,
    CONNECTIONS,
    MUTATIONS,
    Limit,
    RateWindow,
    TokenBucket,
    capped_wait,
    find_limit,
)

# Clients whose use is remembered. Beyond it, those that used something least lately are forgotten.
_KEPT_MAX: Final = 10_000
# Clients invent their ids, of up to 32 KB: of a longer name its digest is kept.
_NAME_LENGTH_MAX: Final = 250

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Windows:
    """`count` samples of `size_seconds` each."""

    count: int
    size_seconds: float

    def new(self) -> RateWindow:
        return RateWindow(self.count, self.size_seconds)

    @property
    def seconds(self) -> float:
        return self.count * self.size_seconds


class _LastUsed(OrderedDict[_Key, _Value]):
    """The last `_KEPT_MAX` that were used, in that order."""

    def use(self, key: _Key, new: Callable[[], _Value]) -> _Value:
        found = self.get(key)
        if found is not None:
            self.move_to_end(key)
            return found
        if len(self) >= _KEPT_MAX:
            self.popitem(last=False)
        self[key] = made = new()
        return made


class ClientLimits:
    """What one client may use, and what it has used; clients may share a window."""

    __slots__ = ("_limits", "_quotas")

    def __init__(self, quotas: "ClientQuotas", limits: Mapping[str, Limit]) -> None:
        self._quotas = quotas
        self._limits = limits

    def use(self, name: str, amount: float) -> float:
        """Count it, and return the seconds that the client has to wait."""
        limit = self._limits.get(name)
        if limit is None:
            return 0.0
        now = self._quotas.monotonic()
        window = self._quotas.window(name, limit)
        window.record(amount, now)
        wait = window.wait_seconds(limit.rate, now)
        return capped_wait(name, wait, sample_seconds=self._quotas.windows.size_seconds)

    def largest_use(self, name: str) -> int:
        """What may be used at once: all that the window allows."""
        limit = self._limits.get(name)
        if limit is None:
            return sys.maxsize
        windows = self._quotas.windows
        return int(limit.rate * max(windows.count - 1, 1) * windows.size_seconds)

    def has(self, name: str) -> bool:
        return name in self._limits

    def mutation_wait(self) -> float:
        """Until the cluster may be changed again."""
        limit = self._limits.get(MUTATIONS)
        if limit is None:
            return 0.0
        burst = limit.rate * self._quotas.mutation_windows.seconds
        bucket = self._quotas.bucket(limit)
        wait = bucket.wait_seconds(limit.rate, burst, self._quotas.monotonic())
        sample_seconds = self._quotas.mutation_windows.size_seconds
        return capped_wait(MUTATIONS, wait, sample_seconds=sample_seconds)

    def take_mutations(self, count: int) -> None:
        limit = self._limits.get(MUTATIONS)
        if limit is not None:
            burst = limit.rate * self._quotas.mutation_windows.seconds
            now = self._quotas.monotonic()
            self._quotas.bucket(limit).take(count, limit.rate, burst, now)


class ClientQuotas:
    def __init__(
        self,
        entities: ClientEntities,
        monotonic: Callable[[], float],
        *,
        windows: Windows,
        mutation_windows: Windows,
    ) -> None:
        self.monotonic = monotonic
        self.windows = windows
        self.mutation_windows = mutation_windows
        self._entities = entities
        # Called when there are other quotas than before.
        self.on_changed: Callable[[], None] = lambda: None
        # Is there any quota of a user or a client id?
        self.are_set = False
        self._has_connection_quotas = False
        # Of clients that were seen since the last change; None for those without limits.
        self._known: dict[tuple[str, str], ClientLimits | None] = {}
        self._windows: _LastUsed[tuple[str, str | None, str | None], RateWindow] = _LastUsed()
        self._buckets: _LastUsed[tuple[str | None, str | None], TokenBucket] = _LastUsed()
        self._connections: _LastUsed[str, RateWindow] = _LastUsed()
        entities.listeners.append(self._entities_changed)
        self._read()

    def _entities_changed(self, changed: frozenset[ClientEntity]) -> None:
        self._read()
        self.on_changed()

    def _read(self) -> None:
        self._known.clear()
        names = {name for options in self._entities.options.values() for name in options}
        self.are_set = not names.isdisjoint(CLIENT_QUOTAS)
        self._has_connection_quotas = CONNECTIONS in names

    # -- clients ----------------------------------------------------------------------

    def of(self, principal: Principal, client_id: str | None) -> ClientLimits | None:
        """The limits of a client; None if it has none."""
        if not self.are_set:
            return None
        user, client = principal.partition(":")[2], client_id or ""
        key = (_kept_name(user), _kept_name(client))
        if key not in self._known:
            if len(self._known) >= _KEPT_MAX:
                self._known.clear()
            self._known[key] = self._find(user, client)
        return self._known[key]

    def _find(self, user: str, client_id: str) -> ClientLimits | None:
        found = {
            name: _kept_limit(limit)
            for name in CLIENT_QUOTAS
            if (limit := find_limit(name, user, client_id, self._options_of)) is not None
        }
        return ClientLimits(self, found) if found else None

    def _options_of(self, user: str | None, client_id: str | None) -> Mapping[str, str]:
        return self._entities.options_of(ClientEntity(user=user, client_id=client_id))

    def window(self, name: str, limit: Limit) -> RateWindow:
        return self._windows.use((name, limit.user, limit.client_id), self.windows.new)

    def bucket(self, limit: Limit) -> TokenBucket:
        return self._buckets.use((limit.user, limit.client_id), TokenBucket)

    # -- connections ------------------------------------------------------------------

    def connection_wait(self, ip: str) -> float:
        """Count a new connection. It is refused if there is a wait."""
        if not self._has_connection_quotas:
            return 0.0
        rate = self._connection_rate(ip)
        if rate is None:
            return 0.0
        now = self.monotonic()
        window = self._connections.use(ip, self.windows.new)
        window.record(1, now)
        wait = window.wait_seconds(rate, now)
        if wait > 0:
            # What is refused does not count.
            window.record(-1, now)
        return wait

    def _connection_rate(self, ip: str) -> float | None:
        for name in (ip, DEFAULT_NAME):
            rate = self._entities.options_of(ClientEntity(ip=name)).get(CONNECTIONS)
            if rate is not None:
                return float(rate)
        return None


def _kept_limit(limit: Limit) -> Limit:
    user, client_id = limit.user, limit.client_id
    return Limit(
        limit.rate,
        None if user is None else _kept_name(user),
        None if client_id is None else _kept_name(client_id),
    )


def _kept_name(name: str) -> str:
    if len(name) <= _NAME_LENGTH_MAX:
        return name
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()


class Mutations:
    """The changes that one request makes to the cluster (KIP-599). If `is_strict`, those after
    the quota is exceeded fail; older versions of clients do not know that error, and are only
    muted."""

    def __init__(self, limits: ClientLimits | None, *, is_strict: bool) -> None:
        self._limits = limits
        self._is_strict = is_strict

    def take(self, count: int) -> None:
        """Raises KafkaError."""
        if self._limits is None:
            return
        if self._is_strict and self._limits.mutation_wait() > 0:
            raise KafkaError(
                KafkaCode.THROTTLING_QUOTA_EXCEEDED,
                "the quota of controller mutations is exceeded; try again later",
            )
        self._limits.take_mutations(count)

    @property
    def wait_seconds(self) -> float:
        return 0.0 if self._limits is None else self._limits.mutation_wait()
