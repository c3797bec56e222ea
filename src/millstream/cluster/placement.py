"""Which nodes get the replicas of new partitions. Pure: no store, no chance.

Leaders go round the nodes one by one; the further replicas of a partition follow their
leader at a distance that grows with every round, so that when a node goes, its
leaderships fall to many nodes and not all to its neighbour.
"""

from collections.abc import Sequence


def place_replicas(
    broker_ids: Sequence[int], *, partitions: int, replication_factor: int, first: int = 0
) -> list[tuple[int, ...]]:
    """Replicas of `partitions` new partitions, the leader first.

    `first` is the number of the first of them, so that partitions added later go on where
    the earlier ones stopped.
    """
    assert 1 <= replication_factor <= len(broker_ids), "the caller has checked this"
    return [
        _replicas(broker_ids, number, replication_factor)
        for number in range(first, first + partitions)
    ]


def _replicas(broker_ids: Sequence[int], number: int, count: int) -> tuple[int, ...]:
    nodes = len(broker_ids)
    leader = number % nodes
    others = nodes - 1
    distance = number // nodes
    chosen = [broker_ids[leader]]
    for follower in range(count - 1):
        step = 1 + (distance + follower) % others
        chosen.append(broker_ids[(leader + step) % nodes])
    return tuple(chosen)
