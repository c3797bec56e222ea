"""The watch over one host, with its state and its timers as plain values."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
import pyarrow as pa

from millstream.pipeline.silence import HostWatch, _distinct_hosts


class FakeState:
    def __init__(self) -> None:
        self.value: Any = None

    def get(self) -> Any:
        return self.value

    def update(self, value: Any) -> None:
        self.value = value


class FakeHandle:
    """What Spark gives a processor: a state and timers."""

    def __init__(self) -> None:
        self.state = FakeState()
        self.timers: set[int] = set()

    def getValueState(self, name: str, schema: str) -> FakeState:
        return self.state

    def listTimers(self) -> Iterator[int]:
        return iter(sorted(self.timers))

    def registerTimer(self, at_ms: int) -> None:
        self.timers.add(at_ms)

    def deleteTimer(self, at_ms: int) -> None:
        self.timers.remove(at_ms)


class Now:
    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def getCurrentProcessingTimeInMs(self) -> int:
        return self._now_ms


class Host:
    """A host under watch; time is what the test says."""

    def __init__(self) -> None:
        self.handle = FakeHandle()
        self._watch = HostWatch(silent_after_ms=20_000)
        self._watch.init(self.handle)

    def speaks(self, now_ms: int) -> list[str]:
        rows = iter([pd.DataFrame({"host": ["web-1"]})])
        return kinds(self._watch.handleInputRows(("web-1",), rows, Now(now_ms)))

    def passes(self, now_ms: int) -> list[str]:
        found = []
        for at_ms in [each for each in self.handle.timers if each <= now_ms]:
            self.handle.deleteTimer(at_ms)
            found += kinds(self._watch.handleExpiredTimer(("web-1",), Now(now_ms), None))
        return found


def kinds(alerts: Iterator[pd.DataFrame]) -> list[str]:
    return [row["kind"] for alert in alerts for _, row in alert.iterrows()]


def test_a_host_that_goes_on_speaking_gives_no_alert() -> None:
    host = Host()
    for now_ms in range(0, 100_000, 10_000):
        assert host.speaks(now_ms) == []
        assert host.passes(now_ms + 9_999) == []
    assert len(host.handle.timers) == 1


def test_silence_is_told_once_and_so_is_its_end() -> None:
    host = Host()
    host.speaks(1_000)
    assert host.passes(20_999) == []
    assert host.passes(21_000) == ["silent"]
    assert host.passes(90_000) == []
    assert host.speaks(95_000) == ["back"]
    assert host.speaks(96_000) == []
    assert host.passes(116_000) == ["silent"]


def test_each_host_of_a_batch_is_carried_once() -> None:
    batch = pa.RecordBatch.from_pydict({"host": ["a", "b", "a", "a"]})
    [found] = _distinct_hosts(iter([batch]))
    assert found.to_pydict() == {"host": ["a", "b"]}
