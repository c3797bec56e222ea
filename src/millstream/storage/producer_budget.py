"""How many producers the logs of a node remember together.

A client may invent producer ids, and use them in every partition. A log knows no clients, so
partitions share: while the node has no room, a partition with more than its share takes no
producer that it does not know. What is remembered of others is not forgotten for that, as their
retries would then be written twice. Followers and replays take in what the leader wrote, and the
bound of each partition (`producers.PRODUCERS_MAX`) holds for them, too.

Producers that are silent are forgotten earlier while there is little room (`log_producers`).
"""

from collections.abc import Sized
from typing import Final
from weakref import WeakValueDictionary

from millstream.errors import KafkaCode, KafkaError

# About 200 MB; the default of `millstream.producers.max`.
NODE_PRODUCERS_MAX: Final = 400_000
# A count goes through all logs, so it is used for so many new producers, unless a log goes.
_COUNTED_EVERY: Final = 4_000


class ProducerBudget:
    def __init__(self, producers_max: int = NODE_PRODUCERS_MAX) -> None:
        self.set_max(producers_max)
        self._holders: WeakValueDictionary[int, Sized] = WeakValueDictionary()
        # How many of them there were when last counted, and have come since.
        self._holders_known = 0
        # When last counted: how many there were, and the share of each log that has any.
        self._counted = 0
        self._share = producers_max
        # Producers that were new since then, refused ones included.
        self._asked = 0

    def set_max(self, producers_max: int) -> None:
        self._max = producers_max
        self._every = min(_COUNTED_EVERY, producers_max // 100 + 1)

    def note_loaded(self, holder: Sized) -> None:
        """A log has read which producers it remembers."""
        if len(holder):
            self._hold(holder)
            self._asked += len(holder)

    def note_forgotten(self, count: int) -> None:
        """So many producers were silent for long."""
        self._counted -= count

    def note_taken(self, holder: Sized) -> None:
        """A log remembers a producer that is new to it, whoever wrote it."""
        self._hold(holder)
        self._asked += 1

    def _hold(self, holder: Sized) -> None:
        if id(holder) not in self._holders:
            self._holders[id(holder)] = holder
            self._holders_known += 1

    def admit(self, holder: Sized) -> None:
        """A producer is new to a log. Raises KafkaError where there is no room for it; otherwise
        `note_taken` follows once it is written."""
        if self._counted + self._asked >= self._max and self._is_count_old():
            self._count()
        if self._counted + self._asked >= self._max and len(holder) >= self._share:
            self._asked += 1
            raise KafkaError(
                KafkaCode.THROTTLING_QUOTA_EXCEEDED,
                f"the partitions of this node remember {self._counted} producers, and this one"
                f" {len(holder)}; there is no room for another (millstream.producers.max)",
            )

    def is_crowded(self) -> bool:
        """Is more than half of the room taken, about?"""
        half = self._max // 2
        if self._counted + self._asked > half and self._is_count_old():
            self._count()
        return self._counted + self._asked > half

    def _is_count_old(self) -> bool:
        # A log that is gone had room that is free now.
        return self._asked >= self._every or len(self._holders) < self._holders_known

    def _count(self) -> None:
        # The list is made at once: recovery reads logs in threads.
        found = [found for each in self._holders.valuerefs() if (found := each()) is not None]
        counts = [count for each in found if (count := len(each))]
        self._counted = sum(counts)
        self._share = self._max // max(len(counts), 1)
        self._asked = 0
        self._holders_known = len(self._holders)


# Of this process, which is one node.
NODE_BUDGET: Final = ProducerBudget()
