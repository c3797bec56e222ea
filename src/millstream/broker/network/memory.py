"""A bound on the memory that large incoming requests may take together.

A frame that does not fit the shared receive buffer reserves its whole size before it is
received, so that every admitted frame can be completed; one that finds no room waits, and
TCP tells its client to. Small frames pay nothing.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

FREE_BYTES_MAX: Final = 1 << 16


class RequestMemory:
    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._reserved_bytes = 0
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def reserved_bytes(self) -> int:
        return self._reserved_bytes

    def reserve(self, size_bytes: int, call_when_free: Callable[[], None]) -> bool:
        """True if the memory is yours; else try again when called."""
        # One frame alone is always let in, however small the limit.
        if self._reserved_bytes and self._reserved_bytes + size_bytes > self._limit_bytes:
            self._waiting.append(call_when_free)
            return False
        self._reserved_bytes += size_bytes
        return True

    def release(self, size_bytes: int) -> None:
        self._reserved_bytes -= size_bytes
        # Each tries for itself and queues again if there is still no room.
        for _ in range(len(self._waiting)):
            self._waiting.popleft()()
