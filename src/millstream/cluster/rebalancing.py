"""Where the replicas of existing partitions should be: plans of moves. Pure.

A plan moves as little as it can: it takes replicas from the fullest node to the emptiest, one by
one, until they are about equal. It never puts two replicas of a partition on one node, and a
partition never has fewer racks afterwards. Then it spreads the preferred leaders, which copies
nothing: only the order of replicas changes.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final

from millstream.model import TopicPartition

# Nodes count as equal if their difference is below this part of what a node has on average.
_TOLERANCE: Final = 0.05
# An empty replica counts as this part of an average one: it will fill.
_EMPTY_SHARE: Final = 0.1

Replicas = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Placed:
    """A partition as it is now, or will be when its reassignment is complete."""

    where: TopicPartition
    replicas: Replicas
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Move:
    where: TopicPartition
    before: Replicas
    after: Replicas
    size_bytes: int

    @property
    def added(self) -> Replicas:
        return tuple(node for node in self.after if node not in self.before)

    @property
    def copied_bytes(self) -> int:
        return self.size_bytes * len(self.added)


class CannotPlan(Exception):
    """The text says why."""


def evacuated(
    partitions: Sequence[Placed], nodes: Mapping[int, str | None], leaving: Set[int]
) -> list[Move]:
    """Moves after which the leaving nodes have no replica. `nodes` has the rack of each live one.

    Raises CannotPlan if too few nodes stay.
    """
    staying = {node: rack for node, rack in nodes.items() if node not in leaving}
    layout = _Layout(partitions, staying)
    for placed in partitions:
        for node in placed.replicas:
            if node in leaving:
                layout.replace(placed.where, node)
    layout.spread_leaders_of({one.where for one in partitions if set(one.replicas) & leaving})
    return layout.moves()


def balanced(partitions: Sequence[Placed], nodes: Mapping[int, str | None]) -> list[Move]:
    """Moves after which all nodes have about as many bytes and as many preferred leaders.

    Partitions with a replica on a node that is not alive stay as they are.
    """
    movable = [one for one in partitions if nodes.keys() >= set(one.replicas)]
    layout = _Layout(partitions, nodes)
    layout.spread_bytes([one.where for one in movable])
    layout.spread_leaders_of({one.where for one in movable})
    return layout.moves()


class _Layout:
    """The assignment that a plan is working on."""

    def __init__(self, partitions: Sequence[Placed], nodes: Mapping[int, str | None]) -> None:
        self._before = {one.where: one for one in partitions}
        self._replicas = {one.where: one.replicas for one in partitions}
        self._racks = nodes
        replicas = sum(len(one.replicas) for one in partitions)
        total = sum(one.size_bytes * len(one.replicas) for one in partitions)
        empty = 1 + int(_EMPTY_SHARE * total / max(replicas, 1))
        self._weights = {one.where: one.size_bytes + empty for one in partitions}
        self._load = dict.fromkeys(nodes, 0)
        for one in partitions:
            for node in one.replicas:
                if node in self._load:
                    self._load[node] += self._weights[one.where]

    def moves(self) -> list[Move]:
        """What differs, the smallest first: the plan shows progress soon."""
        found = [
            Move(where, placed.replicas, self._replicas[where], placed.size_bytes)
            for where, placed in self._before.items()
            if placed.replicas != self._replicas[where]
        ]
        return sorted(found, key=lambda move: (move.copied_bytes, move.where))

    # -- replicas -----------------------------------------------------------------------

    def replace(self, where: TopicPartition, node: int) -> None:
        """Give a replica to the node that suits best. Raises CannotPlan."""
        others = [each for each in self._replicas[where] if each != node]
        taken = Counter(self._racks.get(each) for each in others)
        free = [each for each in self._load if each not in others]
        if not free:
            raise CannotPlan(
                f"{where} has {len(others) + 1} replicas, and only {len(self._load)} nodes stay."
                " Add a node, or reduce its replicas with `millstream cluster reassign`"
            )
        best = min(free, key=lambda each: (taken[self._racks[each]], self._load[each], each))
        self._put(where, node, best)

    def _put(self, where: TopicPartition, old: int, new: int) -> None:
        weight = self._weights[where]
        if old in self._load:
            self._load[old] -= weight
        self._load[new] += weight
        self._replicas[where] = tuple(
            new if each == old else each for each in self._replicas[where]
        )

    def spread_bytes(self, movable: Sequence[TopicPartition]) -> None:
        on: dict[int, set[TopicPartition]] = {node: set() for node in self._load}
        for where in movable:
            for node in self._replicas[where]:
                on[node].add(where)
        tolerance = _TOLERANCE * sum(self._load.values()) / max(len(self._load), 1)
        while (found := self._next_move(on, tolerance)) is not None:
            where, high, low = found
            self._put(where, high, low)
            on[high].remove(where)
            on[low].add(where)

    def _next_move(
        self, on: Mapping[int, Set[TopicPartition]], tolerance: float
    ) -> tuple[TopicPartition, int, int] | None:
        in_order = sorted(self._load, key=lambda node: (self._load[node], node))
        for high in reversed(in_order):
            for low in in_order:
                gap = self._load[high] - self._load[low]
                if gap <= tolerance:
                    break
                where = self._best_for(on[high], high, low, gap)
                if where is not None:
                    return where, high, low
        return None

    def _best_for(
        self, candidates: Iterable[TopicPartition], high: int, low: int, gap: int
    ) -> TopicPartition | None:
        """The partition whose move makes two nodes most equal, if any makes them more so."""
        fitting = [
            where
            for where in candidates
            if self._weights[where] < gap
            and low not in self._replicas[where]
            and self._keeps_racks(where, high, low)
        ]
        return min(
            fitting, key=lambda where: (abs(gap / 2 - self._weights[where]), where), default=None
        )

    def _keeps_racks(self, where: TopicPartition, old: int, new: int) -> bool:
        racks = {self._racks.get(node) for node in self._replicas[where]}
        others = {self._racks.get(node) for node in self._replicas[where] if node != old}
        return len(others | {self._racks[new]}) >= len(racks)

    # -- leaders ------------------------------------------------------------------------

    def spread_leaders_of(self, movable: Set[TopicPartition]) -> None:
        """Equal numbers of first replicas, by exchanging the first with another one."""
        leads = Counter(dict.fromkeys(self._load, 0))
        leads.update(self._replicas[where][0] for where in self._replicas)
        while (path := self._path_from_most(leads, movable)) is not None:
            for where, new in path:
                old = self._replicas[where][0]
                self._replicas[where] = _with_first(self._replicas[where], new)
                leads[old] -= 1
                leads[new] += 1

    def _path_from_most(
        self, leads: Counter[int], movable: Set[TopicPartition]
    ) -> list[tuple[TopicPartition, int]] | None:
        """Exchanges after which the node with the most leaders has one less, and one that had at
        least two fewer has one more."""
        led: dict[int, list[TopicPartition]] = {}
        for where in sorted(movable):
            led.setdefault(self._replicas[where][0], []).append(where)
        for most in sorted(self._load, key=lambda node: (-leads[node], node)):
            path = self._path(most, leads, led)
            if path is not None:
                return path
        return None

    def _path(
        self, start: int, leads: Counter[int], led: Mapping[int, Sequence[TopicPartition]]
    ) -> list[tuple[TopicPartition, int]] | None:
        came_by: dict[int, tuple[TopicPartition, int]] = {}
        waiting = deque([start])
        while waiting:
            node = waiting.popleft()
            if leads[node] <= leads[start] - 2:
                steps = []
                while node != start:
                    where, before = came_by[node]
                    steps.append((where, node))
                    node = before
                return steps
            for where in led.get(node, ()):
                for other in self._replicas[where][1:]:
                    if other != start and other not in came_by and other in self._load:
                        came_by[other] = (where, node)
                        waiting.append(other)
        return None


def _with_first(replicas: Replicas, first: int) -> Replicas:
    """The first and another one change places: the others keep theirs."""
    place = replicas.index(first)
    return (first, *replicas[1:place], replicas[0], *replicas[place + 1 :])
