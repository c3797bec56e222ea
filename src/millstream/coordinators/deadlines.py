"""Deadlines of one shard: cheap to move, because every heartbeat moves one.

Moving a deadline back only records the new time. The heap keeps the old entry, which goes
back into the heap with the new time when it comes up.
"""

import heapq
from collections.abc import Iterator

from millstream.coordinators.decision import Deadline, DeadlineKey


class Deadlines:
    def __init__(self) -> None:
        self._wanted: dict[DeadlineKey, int] = {}
        # The time of the key's entry in the heap; at most one useful entry each.
        self._queued: dict[DeadlineKey, int] = {}
        self._heap: list[tuple[int, int, DeadlineKey]] = []
        self._count = 0

    def set(self, deadline: Deadline) -> None:
        key, at_ms = deadline.key, deadline.at_ms
        if at_ms is None:
            self._wanted.pop(key, None)
            return
        if deadline.is_new_only and key in self._wanted:
            return
        self._wanted[key] = at_ms
        queued = self._queued.get(key)
        if queued is None or at_ms < queued:
            self._push(key, at_ms)

    def is_set(self, key: DeadlineKey) -> bool:
        return key in self._wanted

    def _push(self, key: DeadlineKey, at_ms: int) -> None:
        self._count += 1
        self._queued[key] = at_ms
        # The counter prevents a comparison of keys, which have no order.
        heapq.heappush(self._heap, (at_ms, self._count, key))

    def next_at_ms(self) -> int | None:
        """Not later than the next deadline; possibly nothing is due then."""
        return self._heap[0][0] if self._heap else None

    def due(self, uptime_ms: int) -> Iterator[DeadlineKey]:
        """Remove what is due, one at a time: the effect of one may move the next."""
        while self._heap and self._heap[0][0] <= uptime_ms:
            queued_ms, _, key = heapq.heappop(self._heap)
            if self._queued.get(key) != queued_ms:
                continue
            del self._queued[key]
            at_ms = self._wanted.get(key)
            if at_ms is None:
                continue
            if at_ms > uptime_ms:
                self._push(key, at_ms)
                continue
            del self._wanted[key]
            yield key

    def __len__(self) -> int:
        return len(self._wanted)
