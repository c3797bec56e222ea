"""Throttles replication: bytes a second for replicas that have to catch up.

In-sync replicas are never throttled: producers wait for them. Pure: the time is passed in.
"""

from typing import Final

ALL: Final = "*"


class Throttle:
    """Unused rate accumulates for a second; the last response may exceed it."""

    __slots__ = ("_saved_bytes", "_seen_at")

    def __init__(self) -> None:
        self._saved_bytes = 0.0
        self._seen_at: float | None = None

    def is_over(self, rate: int, now: float) -> bool:
        """Is the rate used up at this moment?"""
        if self._seen_at is None:
            self._saved_bytes = float(rate)
        else:
            earned = (now - self._seen_at) * rate
            self._saved_bytes = min(self._saved_bytes + earned, float(rate))
        self._seen_at = now
        return self._saved_bytes <= 0

    def spend(self, size_bytes: int) -> None:
        self._saved_bytes -= size_bytes


def is_throttled(replicas: str, partition: int, broker_id: int) -> bool:
    """Does a topic's list of throttled replicas, `partition:broker,...` or `*`, name this one?"""
    text = replicas.strip()
    return text == ALL or f"{partition}:{broker_id}" in {one.strip() for one in text.split(",")}
