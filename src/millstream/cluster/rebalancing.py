"""Where the replicas of existing partitions should be: plans of moves. Pure.

A plan moves as little as it can: it takes replicas from the fullest node to the emptiest, one by
one, until they are about equal. Small partitions are counted: hundreds of empty ones weigh nothing,
but each has a leader and will fill. They go first, so that the large ones, of which the bytes
count, make up for what they weigh. It never puts two replicas of a partition on one node, and a
partition never has fewer racks afterwards. Then it spreads the preferred leaders, which copies
nothing: only the order of replicas changes.

The second plan for a layout is empty: no step undoes what an earlier one has reached.
"""

from bisect import insort
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final

from millstream.cluster.weighed import Weighed
from millstream.model import TopicPartition

# Nodes count as equal if their difference is below this part of what a node has on average.
_TOLERANCE: Final = 0.05
# Partitions up to this part of the average one are small.
_SMALL_SHARE: Final = 0.1

Replicas = tuple[int, ...]
# The partitions that each node leads, in order.
_Led = dict[int, list[TopicPartition]]
# Partitions, each with another first replica.
_Path = list[tuple[TopicPartition, int]]


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
    """Moves after which all nodes have about as many bytes, small partitions and preferred leaders.

    Partitions with a replica on a node that is not alive stay as they are.
    """
    movable = [one for one in partitions if nodes.keys() >= set(one.replicas)]
    layout = _Layout(partitions, nodes)
    layout.spread_replicas_of({one.where for one in movable})
    layout.spread_leaders_of({one.where for one in movable})
    layout.spread_large_leaders_of({one.where for one in movable})
    return layout.moves()


class _Layout:
    """The assignment that a plan is working on."""

    def __init__(self, partitions: Sequence[Placed], nodes: Mapping[int, str | None]) -> None:
        self._before = {one.where: one for one in partitions}
        self._replicas = {one.where: one.replicas for one in partitions}
        self._racks = nodes
        average = sum(one.size_bytes for one in partitions) / max(len(partitions), 1)
        self._small = {one.where for one in partitions if one.size_bytes <= _SMALL_SHARE * average}
        self._bytes = dict.fromkeys(nodes, 0)
        self._small_counts = dict.fromkeys(nodes, 0)
        # Of each topic on each node.
        self._topic_counts: Counter[tuple[str, int]] = Counter()
        for one in partitions:
            for node in one.replicas:
                if node in nodes:
                    self._count(one.where, node, 1)

    def _count(self, where: TopicPartition, node: int, change: int) -> None:
        self._bytes[node] += change * self._before[where].size_bytes
        self._small_counts[node] += change * (where in self._small)
        self._topic_counts[where.topic, node] += change

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
        free = [each for each in self._racks if each not in others]
        if not free:
            raise CannotPlan(
                f"{where} has {len(others) + 1} replicas, and only {len(self._racks)} nodes stay."
                " Add a node, or reduce its replicas with `millstream cluster reassign`"
            )
        load = self._small_counts if where in self._small else self._bytes
        best = min(free, key=lambda each: (taken[self._racks[each]], load[each], each))
        self._put(where, node, best)

    def _put(self, where: TopicPartition, old: int, new: int) -> None:
        if old in self._racks:
            self._count(where, old, -1)
        self._count(where, new, 1)
        self._replicas[where] = tuple(
            new if each == old else each for each in self._replicas[where]
        )

    def spread_replicas_of(self, movable: Set[TopicPartition]) -> None:
        self._spread(dict.fromkeys(movable & self._small, 1), load=self._small_counts, tolerance=1)
        self._spread(
            {where: self._before[where].size_bytes for where in movable - self._small},
            load=self._bytes,
            tolerance=_TOLERANCE * sum(self._bytes.values()) / max(len(self._bytes), 1),
        )

    def _spread(
        self,
        weights: Mapping[TopicPartition, int],
        *,
        load: Mapping[int, int],
        tolerance: float,
    ) -> None:
        """Move partitions until the load of all nodes is about equal; `_put` keeps the load."""
        on = {node: Weighed() for node in self._racks}
        for where, weight in weights.items():
            for node in self._replicas[where]:
                on[node].add(where, weight)
        while (found := self._next_move(on, load, tolerance)) is not None:
            where, high, low = found
            self._put(where, high, low)
            on[high].remove(where, weights[where])
            on[low].add(where, weights[where])

    def _next_move(
        self, on: Mapping[int, Weighed], load: Mapping[int, int], tolerance: float
    ) -> tuple[TopicPartition, int, int] | None:
        in_order = sorted(load, key=lambda node: (load[node], node))
        for high in reversed(in_order):
            for low in in_order:
                gap = load[high] - load[low]
                if gap <= tolerance:
                    break
                found = self._best_of(on[high], high, low, gap)
                if found is not None:
                    return found, high, low
        return None

    def _best_of(self, there: Weighed, high: int, low: int, gap: int) -> TopicPartition | None:
        """The partition whose move makes two nodes most equal; of these one of the topic that the
        nodes share most unequally, so that a node gets some of every topic."""
        topics = self._topic_counts
        return there.nearest(
            gap / 2,
            below=gap,
            may_move=lambda where: self._can_move(where, high, low),
            rank=lambda topic: topics[topic, low] - topics[topic, high],
        )

    def _can_move(self, where: TopicPartition, old: int, new: int) -> bool:
        return new not in self._replicas[where] and self._keeps_racks(where, old, new)

    def _keeps_racks(self, where: TopicPartition, old: int, new: int) -> bool:
        racks = {self._racks.get(node) for node in self._replicas[where]}
        others = {self._racks.get(node) for node in self._replicas[where] if node != old}
        return len(others | {self._racks[new]}) >= len(racks)

    # -- leaders ------------------------------------------------------------------------

    def spread_leaders_of(self, movable: Set[TopicPartition]) -> None:
        """Equal numbers of first replicas, by exchanging the first with another one."""
        leads = self._leads(self._replicas.keys())
        led = self._led(movable)
        while (path := self._path_from_most(leads, led)) is not None:
            self._exchange(path, led, leads)

    def spread_large_leaders_of(self, movable: Set[TopicPartition]) -> None:
        """Equal numbers of large partitions to lead, too: each against a small one, so that no
        node leads more than before."""
        leads = self._leads(self._replicas.keys() - self._small)
        large, small = self._led(movable - self._small), self._led(movable & self._small)
        small_leads = self._leads(self._small)
        while (found := self._trade(leads, large, small)) is not None:
            there, back = found
            self._exchange(there, large, leads)
            self._exchange(back, small, small_leads)

    def _trade(self, leads: Counter[int], large: _Led, small: _Led) -> tuple[_Path, _Path] | None:
        in_order = sorted(self._racks, key=lambda node: (leads[node], node))
        for high in reversed(in_order):
            for low in in_order:
                if leads[low] > leads[high] - 2:
                    break
                there = self._path(high, {low}, large)
                back = there and self._path(low, {high}, small)
                if there and back:
                    return there, back
        return None

    def _leads(self, partitions: Iterable[TopicPartition]) -> Counter[int]:
        return Counter(self._replicas[where][0] for where in partitions)

    def _led(self, partitions: Set[TopicPartition]) -> _Led:
        led: _Led = {}
        for where in sorted(partitions):
            led.setdefault(self._replicas[where][0], []).append(where)
        return led

    def _exchange(self, path: _Path, led: _Led, leads: Counter[int]) -> None:
        """`led` and `leads` know the partitions of the path."""
        for where, new in path:
            old = self._replicas[where][0]
            self._replicas[where] = _with_first(self._replicas[where], new)
            led[old].remove(where)
            insort(led.setdefault(new, []), where)
            leads[old] -= 1
            leads[new] += 1

    def _path_from_most(self, leads: Counter[int], led: _Led) -> _Path | None:
        """Exchanges after which the node with the most leaders has one less, and one that had at
        least two fewer has one more."""
        for most in sorted(self._racks, key=lambda node: (-leads[node], node)):
            fewer = {node for node in self._racks if leads[node] <= leads[most] - 2}
            path = self._path(most, fewer, led)
            if path is not None:
                return path
        return None

    def _path(self, start: int, goals: Set[int], led: _Led) -> _Path | None:
        """The fewest exchanges after which the start leads one less, and a goal one more."""
        came_by: dict[int, tuple[TopicPartition, int]] = {}
        waiting = deque([start])
        while waiting:
            node = waiting.popleft()
            if node in goals:
                steps = []
                while node != start:
                    where, before = came_by[node]
                    steps.append((where, node))
                    node = before
                return steps
            for where in led.get(node, ()):
                for other in self._replicas[where][1:]:
                    if other != start and other not in came_by and other in self._racks:
                        came_by[other] = (where, node)
                        waiting.append(other)
        return None


def _with_first(replicas: Replicas, first: int) -> Replicas:
    """The first and another one change places: the others keep theirs."""
    place = replicas.index(first)
    return (first, *replicas[1:place], replicas[0], *replicas[place + 1 :])
