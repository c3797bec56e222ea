"""What the share coordinator keeps of share partitions, and who may change it.

One shard holds the share partitions whose names belong to its partition of
`__share_group_state`. `apply` is the only way to change it, now and in every replay. The
leaders of partitions send their changes; of two leaders the newer one counts.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final
from uuid import UUID

from millstream.cluster.state import ClusterImage
from millstream.coordinators.codecs.share_state import (
    NO_COUNT,
    NO_START,
    ShareChange,
    ShareKey,
    ShareUpdate,
    SnapshotChange,
    StoredShare,
    UpdateChange,
    decode,
    encode,
)
from millstream.coordinators.decision import DeadlineKey, DecisionOf, Ticket
from millstream.coordinators.journal import Machine, Shard
from millstream.coordinators.share.state_batches import StateBatch, combine
from millstream.errors import KafkaCode, KafkaError
from millstream.lazy_dataclass import dataclass

# Of a request that does not know: then nothing is fenced.
NO_EPOCH: Final = -1
FIRST_EPOCH: Final = 0


@dataclass(frozen=True, slots=True)
class ShareStateEnv:
    """Everything a decision may know besides its state and its request."""

    now_ms: int
    image: ClusterImage
    # After so many updates of a partition a snapshot follows.
    updates_per_snapshot: int
    ticket: Ticket


@dataclass(frozen=True, slots=True)
class Written:
    """What a leader stores: the records that have changed, and where the partition starts."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    finished_count: int
    batches: tuple[StateBatch, ...]


@dataclass(slots=True)
class _Newest:
    """The newest leader and state of a share partition; older ones are fenced."""

    leader_epoch: int
    state_epoch: int
    # Since the last snapshot.
    updates: int = 0


class ShareStates:
    def __init__(self) -> None:
        self.partitions: dict[ShareKey, StoredShare] = {}
        # Of the same partitions. One table, because a key takes long to look up.
        self.newest: dict[ShareKey, _Newest] = {}

    def apply(self, change: ShareChange) -> None:
        if isinstance(change, UpdateChange):
            self._update(change.key, change.value)
        elif change.value is None:
            self._forget(change.key)
        else:
            self._replace(change.key, change.value)

    def _replace(self, key: ShareKey, value: StoredShare) -> None:
        self.partitions[key] = value
        newest = self.newest.setdefault(key, _Newest(value.leader_epoch, 0))
        newest.leader_epoch = max(newest.leader_epoch, value.leader_epoch)
        newest.state_epoch = max(newest.state_epoch, value.state_epoch)
        newest.updates = 0

    def _update(self, key: ShareKey, value: ShareUpdate) -> None:
        known = self.partitions.get(key)
        if known is None:
            # Its snapshot was cut off with the start of the log: a newer one follows.
            return
        # Updates of one leader may arrive in another order; a start never moves back.
        start_offset = max(known.start_offset, value.start_offset)
        self.partitions[key] = StoredShare(
            known.snapshot_epoch,
            known.state_epoch,
            max(known.leader_epoch, value.leader_epoch),
            start_offset,
            value.finished_count,
            known.created_ms,
            known.written_ms,
            combine(known.batches, value.batches, start_offset=start_offset),
        )
        newest = self.newest[key]
        newest.updates += 1
        newest.leader_epoch = max(newest.leader_epoch, value.leader_epoch)

    def _forget(self, key: ShareKey) -> None:
        self.partitions.pop(key, None)
        self.newest.pop(key, None)

    def names(self) -> Iterable[str]:
        return (key.name for key in self.partitions)

    def apply_pending(self, change: ShareChange, producer_id: int) -> None:
        raise AssertionError("share state is never written in a transaction")

    def end_transaction(self, producer_id: int, is_commit: bool) -> Iterable[str]:
        return ()


class ShareStateDecision(DecisionOf[StoredShare, ShareChange, ShareStateEnv]):
    __slots__ = ()


def initialize(
    states: ShareStates, key: ShareKey, *, state_epoch: int, start_offset: int, env: ShareStateEnv
) -> ShareStateDecision:
    """Begin a share partition, or begin it again elsewhere."""
    _check_exists(key, env)
    known = states.partitions.get(key)
    if known is not None:
        _check_state_epoch(states.newest[key], state_epoch)
    value = StoredShare(
        snapshot_epoch=0 if known is None else known.snapshot_epoch + 1,
        state_epoch=state_epoch,
        leader_epoch=FIRST_EPOCH,
        start_offset=start_offset,
        finished_count=NO_COUNT if start_offset == NO_START else 0,
        created_ms=env.now_ms,
        written_ms=env.now_ms,
    )
    return ShareStateDecision(reply=value, records=[SnapshotChange(key, value)])


def read(
    states: ShareStates, key: ShareKey, *, leader_epoch: int, env: ShareStateEnv
) -> ShareStateDecision:
    """What a leader continues with. From here on, older leaders are fenced."""
    known = _known(states, key, "Read")
    newest = states.newest[key]
    _check_leader_epoch(newest, leader_epoch)
    _check_exists(key, env)
    if leader_epoch in (NO_EPOCH, newest.leader_epoch):
        return ShareStateDecision(reply=known)
    written = Written(known.state_epoch, leader_epoch, known.start_offset, known.finished_count, ())
    record = _record(newest, key, known, written, leader_epoch, env)
    return ShareStateDecision(reply=known, records=[record])


def write(
    states: ShareStates, key: ShareKey, written: Written, env: ShareStateEnv
) -> ShareStateDecision:
    known = _known(states, key, "Write")
    newest = states.newest[key]
    _check_leader_epoch(newest, written.leader_epoch)
    _check_state_epoch(newest, written.state_epoch)
    _check_exists(key, env)
    record = _record(newest, key, known, written, known.leader_epoch, env)
    return ShareStateDecision(reply=known, records=[record])


def delete(states: ShareStates, key: ShareKey, env: ShareStateEnv) -> ShareStateDecision:
    """Forget a share partition; it need not be known."""
    _check_exists(key, env)
    known = states.partitions.get(key)
    if known is None:
        return ShareStateDecision(reply=UNKNOWN)
    return ShareStateDecision(reply=known, records=[SnapshotChange(key, None)])


def summary(states: ShareStates, key: ShareKey, env: ShareStateEnv) -> ShareStateDecision:
    _check_exists(key, env)
    return ShareStateDecision(reply=states.partitions.get(key, UNKNOWN))


# The answer about a share partition that was never begun.
UNKNOWN: Final = StoredShare(0, FIRST_EPOCH, FIRST_EPOCH, NO_START, NO_COUNT, 0, 0)


def tombstones(states: ShareStates, topic_id: UUID) -> list[ShareChange]:
    """For a topic that was deleted."""
    return [SnapshotChange(key, None) for key in states.partitions if key.topic_id == topic_id]


def snapshots(states: ShareStates, env: ShareStateEnv) -> list[ShareChange]:
    """Everything again: once they are committed, earlier records say nothing more."""
    return [
        SnapshotChange(
            key,
            replace(value, snapshot_epoch=value.snapshot_epoch + 1, written_ms=env.now_ms),
        )
        for key, value in states.partitions.items()
    ]


def _record(
    newest: _Newest,
    key: ShareKey,
    known: StoredShare,
    written: Written,
    leader_epoch: int,
    env: ShareStateEnv,
) -> ShareChange:
    if newest.updates < env.updates_per_snapshot:
        return UpdateChange(
            key,
            ShareUpdate(
                known.snapshot_epoch,
                leader_epoch,
                written.start_offset,
                written.finished_count,
                combine((), written.batches, start_offset=written.start_offset),
            ),
        )
    start = max(known.start_offset, written.start_offset)
    return SnapshotChange(
        key,
        StoredShare(
            snapshot_epoch=known.snapshot_epoch + 1,
            state_epoch=known.state_epoch,
            leader_epoch=leader_epoch,
            start_offset=start,
            finished_count=written.finished_count,
            created_ms=env.now_ms,
            written_ms=env.now_ms,
            batches=combine(known.batches, written.batches, start_offset=start),
        ),
    )


def _known(states: ShareStates, key: ShareKey, what: str) -> StoredShare:
    found = states.partitions.get(key)
    if found is None:
        raise KafkaError(
            KafkaCode.INVALID_REQUEST,
            f"{what} operation on uninitialized share partition not allowed.",
        )
    return found


def _check_exists(key: ShareKey, env: ShareStateEnv) -> None:
    if key.partition < 0:
        text = "The partition id cannot be a negative number."
        raise KafkaError(KafkaCode.INVALID_REQUEST, text)
    topic = env.image.topics_by_id.get(key.topic_id)
    if topic is None or key.partition >= len(topic.partitions):
        raise KafkaError(KafkaCode.UNKNOWN_TOPIC_OR_PARTITION)


def _check_leader_epoch(newest: _Newest, epoch: int) -> None:
    if epoch != NO_EPOCH and epoch < newest.leader_epoch:
        raise KafkaError(KafkaCode.FENCED_LEADER_EPOCH)


def _check_state_epoch(newest: _Newest, epoch: int) -> None:
    if epoch != NO_EPOCH and epoch < newest.state_epoch:
        raise KafkaError(KafkaCode.FENCED_STATE_EPOCH)


# -- the machine ------------------------------------------------------------------------


def _no_deadline(
    states: ShareStates, key: DeadlineKey, env: ShareStateEnv
) -> DecisionOf[None, ShareChange, ShareStateEnv]:
    raise AssertionError("share state has no deadlines")


def _after_replay(
    states: ShareStates, env: ShareStateEnv
) -> DecisionOf[None, ShareChange, ShareStateEnv]:
    return DecisionOf()


ShareStateShard = Shard[ShareStates, ShareChange, ShareStateEnv]

SHARE_STATES: Final[Machine[ShareStates, ShareChange, ShareStateEnv]] = Machine(
    new_state=ShareStates,
    encode=encode,
    decode=decode,
    apply=ShareStates.apply,
    apply_pending=ShareStates.apply_pending,
    end_transaction=ShareStates.end_transaction,
    names=ShareStates.names,
    deadline_is_over=_no_deadline,
    after_replay=_after_replay,
)
