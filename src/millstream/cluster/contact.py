"""Whether this node is the one that is cut off, from ZooKeeper and from all other nodes.

While ZooKeeper is silent for everybody, its nodes go on: they hear each other, and nobody is
replaced. A node for which it alone is silent is replaced, and the controller tells it; the others
refuse its fetches as those of a dead node, and that does not count as hearing them. One that
neither ZooKeeper nor any other node answers has been replaced by them, for all it can know.
Clients that reach it would send to it and read from it for ever, because whenever they ask where to
go it names itself. So it gives its roles up.
"""

from collections.abc import Collection
from typing import Final

from millstream.clock import Clock
from millstream.cluster.lease import Lease

# Where a single other node was heard, the dead one may just as well be the other. That is so in a
# cluster of two, and where this node shares partitions with one alone.
_OTHERS_MIN: Final = 2


class Contact:
    """With the other nodes."""

    __slots__ = ("_clock", "_heard_at", "_lease")

    def __init__(self, clock: Clock, lease: Lease) -> None:
        self._clock = clock
        self._lease = lease
        # By node; only of nodes that have reasons to be heard all the time: they follow this
        # one, or it follows them.
        self._heard_at: dict[int, float] = {}

    def heard(self, node_id: int) -> None:
        """Another node has fetched from here, or answered a fetch as that of a living node."""
        self._heard_at[node_id] = self._clock.monotonic()

    def is_lost(self, *, others: Collection[int]) -> bool:
        """Has everybody been silent for a session timeout? `others` count as alive."""
        session_seconds = self._lease.session_seconds
        store_silent_seconds = self._lease.silent_seconds()
        if not session_seconds or store_silent_seconds < session_seconds:
            return False
        now = self._clock.monotonic()
        silent_seconds = [now - at for node, at in self._heard_at.items() if node in others]
        # Nodes that had nothing to say before are not missed.
        missed_seconds_max = store_silent_seconds + session_seconds
        missed = [seconds for seconds in silent_seconds if seconds <= missed_seconds_max]
        return len(missed) >= _OTHERS_MIN and min(missed) >= session_seconds
