"""Whether this node is the one that is cut off, from ZooKeeper and from all other nodes.

While ZooKeeper is silent for everybody, its nodes go on: they hear each other, and nobody is
replaced. A node for which it alone is silent is replaced, and the controller tells it. One that
neither ZooKeeper nor any other node answers has been replaced by them, for all it can
know. Clients that reach it would send to it and read from it for ever, because whenever they ask
where to go it names itself. So it gives its roles up.
"""

from typing import Final

from millstream.clock import Clock
from millstream.cluster.lease import Lease

# With a single other node, the dead one may just as well be the other.
_OTHERS_MIN: Final = 2


class Contact:
    """With the other nodes."""

    __slots__ = ("_clock", "_heard_at", "_lease")

    def __init__(self, clock: Clock, lease: Lease) -> None:
        self._clock = clock
        self._lease = lease
        # None before a node was heard that has reasons to be heard all the time: a follower
        # fetches from it, or it follows.
        self._heard_at: float | None = None

    def heard(self) -> None:
        """Another node has fetched from here, or answered a fetch."""
        self._heard_at = self._clock.monotonic()

    def is_lost(self, *, others: int) -> bool:
        """Has everybody been silent for a session timeout?"""
        session_seconds = self._lease.session_seconds
        if others < _OTHERS_MIN or self._heard_at is None or not session_seconds:
            return False
        others_silent_seconds = self._clock.monotonic() - self._heard_at
        store_silent_seconds = self._lease.silent_seconds()
        # Nodes that had nothing to say before are not missed.
        were_heard = others_silent_seconds <= store_silent_seconds + session_seconds
        return were_heard and min(others_silent_seconds, store_silent_seconds) >= session_seconds
