"""How fast connections are accepted, of the node and of each listener (KIP-612).

Nobody is refused: beyond a rate, the listener accepts nothing for a while, and clients wait in
the kernel's queue. What one address may open is a quota, and refused: `broker.security.quota_use`.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from millstream.lazy_dataclass import dataclass
from millstream.security.quotas import RateWindow

_NODE: Final = ""


@dataclass(frozen=True, slots=True)
class AcceptRates:
    """Connections per second; None: no limit. The node's counts for all listeners but the one
    of other nodes, which must get through whatever clients do."""

    node: int | None = None
    by_listener: Mapping[str, int] = field(default_factory=dict)
    listener_of_nodes: str | None = None

    def of(self, listener: str) -> dict[str, int]:
        """The limits that a new connection counts against, by the name of their window."""
        found = {}
        if listener in self.by_listener:
            found[listener] = self.by_listener[listener]
        if self.node is not None and listener != self.listener_of_nodes:
            found[_NODE] = self.node
        return found


class AcceptRate:
    """What was accepted in the last windows."""

    def __init__(self, *, window_count: int, window_seconds: float) -> None:
        self.rates = AcceptRates()
        self._window_count = window_count
        self._window_seconds = window_seconds
        self._windows: dict[str, RateWindow] = {}

    def count(self, listener: str, now: float) -> float:
        """Count a new connection; how long the listener is to accept no other."""
        wait = 0.0
        for name, rate in self.rates.of(listener).items():
            window = self._windows.get(name)
            if window is None:
                window = RateWindow(self._window_count, self._window_seconds)
                self._windows[name] = window
            window.record(1, now)
            wait = max(wait, window.wait_seconds(rate, now))
        return min(wait, self._window_count * self._window_seconds)
