import asyncio
from types import SimpleNamespace
from typing import Any

from millstream.broker.network.replies import Pending
from millstream.broker.requests.timing import BOUNDS, Histogram, RequestTimes, TimedDispatch

FRAME = memoryview(b"\x00\x03rest")


def test_a_histogram_counts_by_bound() -> None:
    histogram = Histogram()
    for seconds in (0.0001, 0.001, 0.0011, 99.0):
        histogram.add(seconds)
    assert histogram.count == 4
    assert histogram.counts[0] == 1
    assert histogram.counts[BOUNDS.index(0.001)] == 1
    assert histogram.counts[-1] == 1
    assert histogram.quantile(0.5) == 0.001
    assert Histogram().quantile(0.5) is None


def timed(reply: Any) -> tuple[TimedDispatch, RequestTimes, SimpleNamespace]:
    clock = SimpleNamespace(now=0.0)
    times = RequestTimes()
    return TimedDispatch(lambda c, f: reply, times, lambda: clock.now), times, clock


def test_a_reply_at_once_is_counted_at_once() -> None:
    dispatch, times, _ = timed([b"reply"])
    assert dispatch.dispatch(None, FRAME) == [b"reply"]  # type: ignore[arg-type]
    assert times.by_api[3].count == 1


def test_a_reply_that_waits_is_counted_when_it_comes() -> None:
    async def run() -> None:
        async def later() -> list[object]:
            return [b"later"]

        dispatch, times, clock = timed(Pending(later()))
        pending = dispatch.dispatch(None, FRAME)  # type: ignore[arg-type]
        assert isinstance(pending, Pending)
        assert times.by_api == {}
        clock.now = 0.2
        assert await pending.answer == [b"later"]
        assert times.by_api[3].sum_seconds == 0.2

        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        dispatch, times, clock = timed(Pending(future))
        dispatch.dispatch(None, FRAME)  # type: ignore[arg-type]
        future.set_result(None)
        await asyncio.sleep(0)
        assert times.by_api[3].count == 1

    asyncio.run(run())
