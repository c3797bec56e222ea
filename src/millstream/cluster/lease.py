"""How long a node may believe what it was last told, by its own clock.

ZooKeeper gives a silent node's place away after a session timeout. Without an answer for
two thirds of that, counted from when the question was *sent*, a node must assume that the
last third is running: it may no longer answer anything that a successor could contradict.

After a pause of the whole process the comparison comes before the next answer, because it
is made when the answer is; nobody has to notice the pause first.
"""

from typing import Final

from millstream.clock import Clock

_SHARE_OF_SESSION: Final = 2 / 3


class Lease:
    __slots__ = ("_clock", "_seconds", "_sent_at")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seconds = 0.0
        self._sent_at = 0.0

    def is_valid(self) -> bool:
        return self._clock.monotonic() - self._sent_at < self._seconds

    def renew(self, *, sent_at: float, session_timeout_ms: int) -> None:
        """A question sent at `sent_at`, by the monotonic clock, was answered."""
        self._sent_at = max(self._sent_at, sent_at)
        self._seconds = session_timeout_ms / 1000 * _SHARE_OF_SESSION

    def end(self) -> None:
        self._seconds = 0.0
