"""The partitions of one node by their weight, to find one to move without a look at all of them."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable

from millstream.model import TopicPartition

# How much rather a topic than another one should lose a partition here; the smallest wins.
Rank = Callable[[str], int]


class Weighed:
    """Partitions of the same weight are kept by topic, in order."""

    def __init__(self) -> None:
        self._weights: list[int] = []
        self._by_topic: dict[int, dict[str, list[TopicPartition]]] = {}

    def add(self, where: TopicPartition, weight: int) -> None:
        topics = self._by_topic.get(weight)
        if topics is None:
            topics = self._by_topic[weight] = {}
            insort(self._weights, weight)
        insort(topics.setdefault(where.topic, []), where)

    def remove(self, where: TopicPartition, weight: int) -> None:
        topics = self._by_topic[weight]
        some = topics[where.topic]
        some.remove(where)
        if not some:
            del topics[where.topic]
        if not topics:
            del self._by_topic[weight]
            del self._weights[bisect_left(self._weights, weight)]

    def nearest(
        self, target: float, *, below: int, may_move: Callable[[TopicPartition], bool], rank: Rank
    ) -> TopicPartition | None:
        """Of those that may move and weigh less than `below` the one whose weight is nearest to the
        target; of several the one whose topic has the lowest rank."""
        right = bisect_left(self._weights, target)
        left = right - 1
        stop = bisect_left(self._weights, below)
        left = min(left, stop - 1)
        while left >= 0 or right < stop:
            to_left = target - self._weights[left] if left >= 0 else None
            to_right = self._weights[right] - target if right < stop else None
            found = []
            if to_left is not None and (to_right is None or to_left <= to_right):
                found.append(self._first(self._weights[left], may_move, rank))
                left -= 1
            if to_right is not None and (to_left is None or to_right <= to_left):
                found.append(self._first(self._weights[right], may_move, rank))
                right += 1
            movable = [each for each in found if each is not None]
            if movable:
                return min(movable, key=lambda where: (rank(where.topic), where))
        return None

    def _first(
        self, weight: int, may_move: Callable[[TopicPartition], bool], rank: Rank
    ) -> TopicPartition | None:
        topics = self._by_topic[weight]
        in_order: Iterable[str] = topics
        # Partitions with records rarely have the same weight.
        if len(topics) > 1:
            in_order = sorted(topics, key=lambda topic: (rank(topic), topic))
        for topic in in_order:
            for where in topics[topic]:
                if may_move(where):
                    return where
        return None
