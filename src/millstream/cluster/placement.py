"""Chooses the nodes for the replicas of new partitions. Pure: no store, no random numbers.

Leaders rotate over the nodes. The other replicas of a partition follow their leader at a
distance that grows with every rotation, so that when a node dies, its leaderships move to
many nodes and not all to its neighbour.

If all nodes have a rack, they are ordered so that neighbours are in different racks, and a
partition uses no rack a second time before it has used each once.
"""

from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest


def place_replicas(
    broker_ids: Sequence[int],
    *,
    partitions: int,
    replication_factor: int,
    first: int = 0,
    racks: Mapping[int, str] | None = None,
) -> list[tuple[int, ...]]:
    """Replicas of `partitions` new partitions, the leader first.

    `first` is the number of the first of them, so that partitions added later continue where
    the earlier ones stopped. `racks` counts only if it has every node.
    """
    assert 1 <= replication_factor <= len(broker_ids), "the caller has checked this"
    rack_of = {} if racks is None else {i: racks[i] for i in broker_ids if i in racks}
    if len(rack_of) < len(broker_ids) or len(set(rack_of.values())) == 1:
        rack_of = dict.fromkeys(broker_ids, "")
    ordered = _alternating(broker_ids, rack_of)
    return [
        _replicas(ordered, number, replication_factor, rack_of)
        for number in range(first, first + partitions)
    ]


def _alternating(broker_ids: Sequence[int], rack_of: Mapping[int, str]) -> list[int]:
    """One node of each rack, then the second of each, and so on."""
    by_rack: dict[str, list[int]] = {}
    for broker_id in broker_ids:
        by_rack.setdefault(rack_of[broker_id], []).append(broker_id)
    rounds = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [broker_id for broker_id in chain.from_iterable(rounds) if broker_id is not None]


def _replicas(
    ordered: Sequence[int], number: int, count: int, rack_of: Mapping[int, str]
) -> tuple[int, ...]:
    nodes = len(ordered)
    leader = number % nodes
    chosen = [ordered[leader]]
    if count == 1:
        return tuple(chosen)
    distance = number // nodes
    # The others, nearest first; in each rotation another one is the nearest.
    others = [
        ordered[(leader + 1 + (distance + step) % (nodes - 1)) % nodes] for step in range(nodes - 1)
    ]
    while len(chosen) < count:
        taken = [rack_of[broker_id] for broker_id in chosen]
        # `min` returns the first of equals: the order above decides within a rack's turn.
        following = min(
            (broker_id for broker_id in others if broker_id not in chosen),
            key=lambda broker_id: taken.count(rack_of[broker_id]),
        )
        chosen.append(following)
    return tuple(chosen)
