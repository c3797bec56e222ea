"""What resetting a group to a start would change: decided here for every command and page.

The caller asks the cluster for offsets, and commits what is planned.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from millstream.client.start_position import Start, offset_of
from millstream.model import TopicPartition


@dataclass(frozen=True, slots=True)
class Move:
    """The change of one partition's committed offset."""

    where: TopicPartition
    # None: the group has committed nothing there.
    before: int | None
    after: int
    end: int


def plan_moves(
    places: Iterable[TopicPartition],
    committed: Mapping[TopicPartition, int],
    start: Start,
    *,
    first: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    at: Mapping[TopicPartition, int],
) -> list[Move]:
    """`at` has the offsets at the time of a `FromTime`, and is ignored for other starts.

    Commits for a deleted topic, which has no offsets, stay unchanged."""
    return [
        Move(
            where,
            committed.get(where),
            offset_of(start, first=first[where], end=end[where], at=at.get(where, -1)),
            end[where],
        )
        for where in places
        if where in first and where in end
    ]
