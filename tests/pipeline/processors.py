"""What Spark gives a stateful processor, as plain values: a state, timers, a clock."""

from collections.abc import Iterator
from typing import Any


class FakeState:
    def __init__(self) -> None:
        self.value: Any = None

    def get(self) -> Any:
        return self.value

    def update(self, value: Any) -> None:
        self.value = value

    def clear(self) -> None:
        self.value = None


class FakeHandle:
    """Of one key."""

    def __init__(self) -> None:
        self.states: dict[str, FakeState] = {}
        self.timers: set[int] = set()

    def getValueState(self, name: str, schema: str) -> FakeState:
        return self.states.setdefault(name, FakeState())

    def listTimers(self) -> Iterator[int]:
        return iter(sorted(self.timers))

    def registerTimer(self, at_ms: int) -> None:
        self.timers.add(at_ms)

    def deleteTimer(self, at_ms: int) -> None:
        self.timers.remove(at_ms)

    def take_expired(self, now_ms: int) -> list[int]:
        """As Spark does: a timer is gone when its time is told."""
        expired = [each for each in self.timers if each <= now_ms]
        self.timers.difference_update(expired)
        return expired


class Now:
    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def getCurrentProcessingTimeInMs(self) -> int:
        return self._now_ms
