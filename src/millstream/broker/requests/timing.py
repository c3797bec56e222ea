"""How long requests take, by API: measured in short windows, so that others cost nothing.

While a window is open the node dispatches through `TimedDispatch`. The time is from the whole
frame to the reply, including waits for replicas, disks and new records. Small produces that
repeat may be answered before any dispatch, and are not seen here.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Coroutine
from typing import Any, Final

from millstream.broker.network.connection import Connection
from millstream.broker.network.replies import Pending, Pieces
from millstream.broker.network.server import Dispatch

# Upper bounds in seconds, as Prometheus wants them; one more bucket has the rest.
BOUNDS: Final = (
    *(0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0),
)


class Histogram:
    __slots__ = ("counts", "sum_seconds")

    def __init__(self) -> None:
        # Of requests up to each bound, and beyond the last; not cumulative.
        self.counts = [0] * (len(BOUNDS) + 1)
        self.sum_seconds = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.sum_seconds += seconds

    @property
    def count(self) -> int:
        return sum(self.counts)

    def quantile(self, share: float) -> float | None:
        """An upper bound of the time that this share of the requests took."""
        wanted = share * self.count
        passed = 0
        for bound, count in zip((*BOUNDS, float("inf")), self.counts, strict=True):
            passed += count
            if count and passed >= wanted:
                return bound
        return None


class RequestTimes:
    """By API key."""

    def __init__(self) -> None:
        self.by_api: dict[int, Histogram] = {}

    def add(self, api_key: int, seconds: float) -> None:
        histogram = self.by_api.get(api_key)
        if histogram is None:
            histogram = self.by_api[api_key] = Histogram()
        histogram.add(seconds)


class TimedDispatch:
    def __init__(self, dispatch: Dispatch, times: RequestTimes, now: Callable[[], float]) -> None:
        self._dispatch = dispatch
        self._times = times
        self._now = now

    def dispatch(self, connection: Connection, frame: memoryview) -> Pieces | Pending:
        # Read before: the frame may be gone afterwards.
        api_key = int.from_bytes(frame[:2], "big", signed=True)
        began = self._now()
        reply = self._dispatch(connection, frame)
        if not isinstance(reply, Pending):
            self._times.add(api_key, self._now() - began)
        elif isinstance(reply.answer, asyncio.Future):
            reply.answer.add_done_callback(lambda _: self._times.add(api_key, self._now() - began))
        else:
            reply.answer = self._timed(reply.answer, api_key, began)
        return reply

    async def _timed(
        self, answer: Coroutine[Any, Any, Pieces], api_key: int, began: float
    ) -> Pieces:
        pieces = await answer
        self._times.add(api_key, self._now() - began)
        return pieces
