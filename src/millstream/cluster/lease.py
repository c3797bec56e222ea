"""How long a node may rely on the last answer from ZooKeeper, by its own clock.

ZooKeeper expires a silent node after the session timeout. After two thirds of that without
an answer, counted from when the request was *sent*, a node must assume that it may be
replaced soon: it may no longer answer anything that a successor could contradict.

The check is made for each answer. So after a pause of the whole process it fails before the
next answer, and nothing has to detect the pause. It gates produces with acks 0 and 1, changes of
the ISR, and the removal of silent group members; acks=all waits for the in-sync replicas anyway.
`replication.replicated` has the table.
"""

from typing import Final

from millstream.clock import Clock

_SHARE_OF_SESSION: Final = 2 / 3


class Lease:
    __slots__ = ("_clock", "_seconds", "_sent_at", "session_seconds")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seconds = 0.0
        self._sent_at = 0.0
        # 0 without a session.
        self.session_seconds = 0.0

    def is_valid(self) -> bool:
        return self._clock.monotonic() - self._sent_at < self._seconds

    def is_in_doubt(self) -> bool:
        """Half of it is over: no answer to several requests in a row."""
        return self.silent_seconds() >= self._seconds / 2

    def silent_seconds(self) -> float:
        """How long ago the last request was sent that was answered."""
        return self._clock.monotonic() - self._sent_at

    def renew(self, *, sent_at: float, session_timeout_ms: int) -> None:
        """A request sent at `sent_at`, by the monotonic clock, was answered."""
        self._sent_at = max(self._sent_at, sent_at)
        self.session_seconds = session_timeout_ms / 1000
        self._seconds = self.session_seconds * _SHARE_OF_SESSION

    def end(self) -> None:
        self.session_seconds = self._seconds = 0.0
