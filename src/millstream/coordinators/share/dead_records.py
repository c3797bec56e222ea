"""Records of a share partition that have died, and whose dead letters have to be written."""

from collections.abc import Sequence
from typing import NamedTuple


class DeadRange(NamedTuple):
    first: int
    last: int
    delivery_count: int
    is_rejected: bool


class DeadRecords:
    """In the order in which they died. They stay here until their letters are safe."""

    __slots__ = ("ranges",)

    def __init__(self) -> None:
        self.ranges: list[DeadRange] = []

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def add(self, first: int, last: int, delivery_count: int, *, is_rejected: bool) -> None:
        self.ranges.append(DeadRange(first, last, delivery_count, is_rejected))

    def next(self, records_max: int) -> list[DeadRange]:
        """The first of them, with so many records at most."""
        found: list[DeadRange] = []
        for number, one in enumerate(self.ranges):
            if one.first + records_max <= one.last:
                end = one.first + records_max
                self.ranges[number : number + 1] = [
                    one._replace(last=end - 1),
                    one._replace(first=end),
                ]
            records_max -= self.ranges[number].last - one.first + 1
            found.append(self.ranges[number])
            if records_max <= 0:
                break
        return found

    def written(self, ranges: Sequence[DeadRange]) -> None:
        """The letters of these, which were the next, are safe."""
        del self.ranges[: len(ranges)]
