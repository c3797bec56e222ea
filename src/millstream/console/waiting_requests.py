"""Requests that wait at a partition: how many of each kind, and for what.

Kafka calls the place where they wait the purgatory.
"""

from dataclasses import dataclass

from millstream.replication.group_commit import Durability
from millstream.replication.partition import Partition
from millstream.replication.replicated import ReplicatedPartition


@dataclass(frozen=True, slots=True)
class WaitingRequests:
    what: str
    count: int
    # What ends the wait of the next one, apart from its time limit.
    until: str


@dataclass(frozen=True, slots=True)
class WaitCounts:
    """The same as numbers, for metrics."""

    fetches: int
    produces: int


def waiting_requests(partition: Partition, durability: Durability) -> list[WaitingRequests]:
    """Only the kinds of which there are some."""
    replicas, disk, deletions = _awaited(partition, durability)
    rows = [
        *_fetches(partition),
        WaitingRequests(
            "Produces, for replicas in sync",
            len(replicas),
            f"the high watermark reaches {min(replicas, default=0)}",
        ),
        WaitingRequests(
            "Produces, for the disk",
            len(disk),
            f"everything below {min(disk, default=0)} is synced",
        ),
        WaitingRequests(
            "Deletions of records",
            len(deletions),
            f"no replica has anything below {min(deletions, default=0)}",
        ),
    ]
    return [row for row in rows if row.count]


def count_waiting(partition: Partition, durability: Durability) -> WaitCounts:
    replicas, disk, _ = _awaited(partition, durability)
    return WaitCounts(len(partition.fetch_waits.waiting or ()), len(replicas) + len(disk))


def _fetches(partition: Partition) -> list[WaitingRequests]:
    waiting = tuple(partition.fetch_waits.waiting or ())
    rows = []
    for what, chosen in (
        ("Fetches of consumers", [one for one in waiting if not one.is_replica]),
        ("Fetches of followers", [one for one in waiting if one.is_replica]),
    ):
        missing = max(min((one.missing_bytes for one in chosen), default=0), 1)
        rows.append(WaitingRequests(what, len(chosen), f"{missing:,} B more arrive"))
    return rows


def _awaited(
    partition: Partition, durability: Durability
) -> tuple[list[int], list[int], list[int]]:
    """The offsets that produces await from replicas and from the disk, and deletions."""
    disk = durability.offsets_awaited(partition)
    if isinstance(partition, ReplicatedPartition) and partition.leader is not None:
        replicas, deletions = partition.leader.offsets_awaited()
        return replicas, disk, deletions
    return [], disk, []
