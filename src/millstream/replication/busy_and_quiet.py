"""Which partitions of one leader are asked for together: those where something happens, and
those where nothing does.

Every request names all its partitions, so a record in one of them costs as much as there are
partitions in its request. With thousands of them that would be most of the work. Those that
were quiet for a while go into a request of their own, which nearly always waits; the first
record there brings a partition back among the busy ones.

Pure: the time is passed in. A partition is in one of the two, and while it changes over it
may be fetched twice: the position of an answer shows that it came late.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class QuietRule:
    # So long without a record, or a failure, and a partition is quiet.
    after_seconds: float = 2.0
    # Fewer than these are no burden to the others, and answered sooner among them.
    count_min: int = 100


class BusyAndQuiet(Generic[K]):
    def __init__(self, rule: QuietRule) -> None:
        self._rule = rule
        # In the order in which they are asked for, and since when nothing happened there.
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
        """Something happened there: it is asked for after all the others from now on, because
        an answer has a limit. True when it was quiet until now."""
        was_quiet = partition in self._quiet
        self.remove(partition)
        self._busy[partition] = now
        return was_quiet

    def settle(self, *, now: float) -> None:
        """Move those over where nothing happens, if they are enough to be worth it."""
        rule = self._rule
        still = [each for each, at in self._busy.items() if now - at >= rule.after_seconds]
        if len(still) + len(self._quiet) < rule.count_min:
            return
        for each in still:
            del self._busy[each]
            self._quiet[each] = None
