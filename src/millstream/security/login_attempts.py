"""How long a login has to wait after wrong passwords, so that guessing one takes years.

Wrong passwords count for a user at an address, for the address, whichever users it tries, and for
the user, wherever the tries come from. Each count has some tries for free; after those, every
wrong password doubles the wait, up to a limit. A login during the wait is refused without asking
the cluster, and does not count.

The limit for a user alone is short: strangers must not be able to keep somebody out.
"""

import ipaddress
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from millstream.clock import Clock

# Counts are forgotten when no wrong password came for so long.
FORGOTTEN_SECONDS: Final = 900.0
# Of each kind; then the count that was touched least lately goes.
COUNTS_MAX: Final = 5_000
# A provider gives a home or a server all addresses with the same first half.
_IPV6_PREFIX_BITS: Final = 64


@dataclass(slots=True)
class _Count:
    wrong: int
    last_at: float


class _Counts:
    """Wrong passwords of one kind of key."""

    def __init__(self, *, free: int, seconds_max: float) -> None:
        self._free = free
        self._seconds_max = seconds_max
        # In the order of their last wrong password.
        self._counts: OrderedDict[str, _Count] = OrderedDict()

    def __len__(self) -> int:
        return len(self._counts)

    def wait_seconds(self, key: str, now: float) -> float:
        count = self._counts.get(key)
        if count is None or count.wrong < self._free or self._is_forgotten(count, now):
            return 0.0
        # The exponent is bounded: a float is not.
        pause = min(2.0 ** min(count.wrong - self._free, 30), self._seconds_max)
        return max(count.last_at + pause - now, 0.0)

    def add(self, key: str, now: float) -> None:
        count = self._counts.pop(key, None)
        if count is None or self._is_forgotten(count, now):
            count = _Count(0, now)
        count.wrong += 1
        count.last_at = now
        self._counts[key] = count
        while len(self._counts) > COUNTS_MAX or self._is_forgotten(self._oldest(), now):
            self._counts.popitem(last=False)

    def remove(self, key: str) -> None:
        self._counts.pop(key, None)

    def _oldest(self) -> _Count:
        return next(iter(self._counts.values()))

    @staticmethod
    def _is_forgotten(count: _Count, now: float) -> bool:
        return now - count.last_at > FORGOTTEN_SECONDS


class LoginAttempts:
    def __init__(self, clock: Clock, *, address_seconds_max: float = 300.0) -> None:
        """`address_seconds_max` limits the wait of all users at an address."""
        self._clock = clock
        self._of_both = _Counts(free=5, seconds_max=300.0)
        self._of_address = _Counts(free=20, seconds_max=address_seconds_max)
        self._of_user = _Counts(free=50, seconds_max=10.0)

    def wait_seconds(self, user: str, address: str) -> float:
        """Until this login may be tried; 0 if it may be now."""
        now = self._clock.monotonic()
        network = network_of(address)
        return max(
            self._of_both.wait_seconds(_both(user, network), now),
            self._of_address.wait_seconds(network, now),
            self._of_user.wait_seconds(user, now),
        )

    def note_wrong(self, user: str, address: str, *, is_known: bool = False) -> None:
        """`is_known` if the same password came from another address: then it tells nothing new
        about the user."""
        now = self._clock.monotonic()
        network = network_of(address)
        self._of_both.add(_both(user, network), now)
        self._of_address.add(network, now)
        if not is_known:
            self._of_user.add(user, now)

    def note_right(self, user: str, address: str) -> None:
        """The other counts stay: a guesser may have a user of their own."""
        self._of_both.remove(_both(user, network_of(address)))

    def count(self) -> int:
        """What is kept in memory."""
        return len(self._of_both) + len(self._of_address) + len(self._of_user)


def _both(user: str, network: str) -> str:
    return f"{network} {user}"


def network_of(address: str) -> str:
    """What counts as one address."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if found.version == 4:
        return address
    return str(ipaddress.ip_network((found, _IPV6_PREFIX_BITS), strict=False))
