"""Hosts that fall silent, and hosts that come back: alerts by processing time.

Silence brings no event that could move a watermark, so the machine's own clock counts here:
each host has a timer that every line resets.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle


@dataclass(frozen=True, slots=True)
class HostAlert:
    kind: str
    since_ms: int
    text: str


class HostWatch:
    """State of a host: the time of its last line, and whether it is reported as silent."""

    def __init__(self, handle: "StatefulProcessorHandle", *, silent_after_ms: int) -> None:
        self._handle = handle
        self._silent_after_ms = silent_after_ms
        self._state = handle.getValueState("host", "last_ms long, is_silent boolean")

    def hear(self, now_ms: int) -> Iterator[HostAlert]:
        before = self._state.get()
        self._state.update((now_ms, False))
        for timer_ms in list(self._handle.listTimers()):
            self._handle.deleteTimer(timer_ms)
        self._handle.registerTimer(now_ms + self._silent_after_ms)
        if before is not None and before[1]:
            yield HostAlert("back", now_ms, "speaks again")

    def wake(self) -> Iterator[HostAlert]:
        """Its timer fired."""
        before = self._state.get()
        if before is None or before[1]:
            return
        self._state.update((before[0], True))
        seconds = self._silent_after_ms / 1000
        yield HostAlert("silent", before[0], f"no lines for {seconds:g} s")
