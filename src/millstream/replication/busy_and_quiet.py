"""Divides the partitions of one leader into two requests: the busy ones, and the quiet ones.

Every request names all its partitions, so the cost of a record grows with the number of
partitions in its request. With thousands of them that would be most of the work. Partitions
that were quiet for a while go into a separate request, which nearly always waits; the first
record there moves a partition back to the busy ones.

Pure: the time is passed in. A partition is in one of the two, and while it moves it may be
fetched twice: the position of a response shows that it is late.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class QuietRule:
    # After this long without a record or a failure, a partition is quiet.
    after_seconds: float = 2.0
    # Fewer than these are no burden to the others, and are answered sooner among them.
    count_min: int = 100


class BusyAndQuiet(Generic[K]):
    def __init__(self, rule: QuietRule) -> None:
        self._rule = rule
        # In the order of the request, and since when nothing happened there.
        self._busy: dict[K, float] = {}
        self._quiet: dict[K, None] = {}

    def __len__(self) -> int:
        return len(self._busy) + len(self._quiet)

    @property
    def busy(self) -> list[K]:
        return list(self._busy)

    @property
    def quiet(self) -> list[K]:
        return list(self._quiet)

    def __contains__(self, partition: K) -> bool:
        return partition in self._busy or partition in self._quiet

    def add(self, partition: K, *, now: float) -> None:
        self._quiet.pop(partition, None)
        self._busy[partition] = now

    def remove(self, partition: K) -> None:
        self._busy.pop(partition, None)
        self._quiet.pop(partition, None)

    def happened(self, partition: K, *, now: float) -> bool:
        """Something happened there: from now on it goes last in the request, because a response
        has a size limit. True if it was quiet until now."""
        was_quiet = partition in self._quiet
        self.remove(partition)
        self._busy[partition] = now
        return was_quiet

    def settle(self, *, now: float) -> None:
        """Move the idle ones to the quiet ones, if they are enough to be worth it."""
        rule = self._rule
        still = [each for each, at in self._busy.items() if now - at >= rule.after_seconds]
        if len(still) + len(self._quiet) < rule.count_min:
            return
        for each in still:
            del self._busy[each]
            self._quiet[each] = None
