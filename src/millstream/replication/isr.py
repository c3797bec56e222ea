"""The rules by which a replica leaves the ISR, and joins it.

- It leaves when it is behind the leader's end and has not caught up with it for
  `replica.lag.time.max.ms`, or when it is no longer assigned (`is_behind`). The leader looks every
  half of that time (`broker/membership/in_sync.py`).
- It joins when it has everything up to the high watermark and up to the start of this
  leadership, and the broker that fetched is the registered incarnation (`may_join`).

These are the leader's rules. A replica that is dead, suspect or given up is removed by the
controller, with `cluster.election`.

Pure: `leadership` knows the followers and their positions, `isr_proposer` writes the changes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from millstream.replication.progress import UNKNOWN_BROKER_EPOCH, Follower


@dataclass(frozen=True, slots=True)
class IsrChange:
    """A set of in-sync replicas to write, on the state of this version and no other."""

    isr: tuple[int, ...]
    version: int
    # The broker epoch in which each joining replica fetched: it must be the registered one.
    joining: tuple[tuple[int, int], ...] = ()


def is_behind(follower: Follower | None, *, end_offset: int, lag_ms_max: int, now_ms: int) -> bool:
    """Must a replica leave the ISR? None means that it is no longer assigned, and the
    controller has not removed it yet."""
    if follower is None:
        return True
    if follower.next_offset >= end_offset:
        return False
    return now_ms - follower.caught_up_ms > lag_ms_max


def may_join(
    follower: Follower, *, high_watermark: int, start_offset: int, alive_epoch: int
) -> bool:
    """`start_offset` is where the leadership began, `alive_epoch` the epoch in which the
    follower's broker is registered."""
    return (
        follower.has_fetched
        and follower.next_offset >= max(high_watermark, start_offset)
        and follower.broker_epoch == alive_epoch
    )


def wanted_change(
    isr: Sequence[int],
    followers: Mapping[int, Follower],
    *,
    broker_id: int,
    replicas: Sequence[int],
    version: int,
    start_offset: int,
    high_watermark: int,
    end_offset: int,
    alive: Mapping[int, int],
    lag_ms_max: int,
    now_ms: int,
) -> IsrChange | None:
    """What the leader `broker_id` should write next; None if nothing should change.

    `alive` are the brokers that may hold replicas in sync, by their broker epochs.
    """
    behind = {
        replica
        for replica in isr
        if replica != broker_id
        and is_behind(
            followers.get(replica), end_offset=end_offset, lag_ms_max=lag_ms_max, now_ms=now_ms
        )
    }
    joining = {
        replica: follower.broker_epoch
        for replica, follower in followers.items()
        if replica not in isr
        and may_join(
            follower,
            high_watermark=high_watermark,
            start_offset=start_offset,
            alive_epoch=alive.get(replica, UNKNOWN_BROKER_EPOCH),
        )
    }
    if not behind and not joining:
        return None
    wanted = (set(isr) - behind) | joining.keys()
    in_order = tuple(replica for replica in replicas if replica in wanted)
    return IsrChange(in_order, version, tuple(joining.items()))
