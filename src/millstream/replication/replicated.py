"""A partition with replicas on other nodes: it leads, follows, or has no role yet.

Roles come from the cluster's state, one version after the other. While this node leads, a
`Leader` has everything that belongs to that leadership; while it follows, `following` decides
and `follower_log` applies the leader's responses. In between, requests get
NOT_LEADER_OR_FOLLOWER.

What a replica serves, by its state (`Standing`):

| state                       | acks 0, 1  | acks all            | read       | near read  |
|-----------------------------|------------|---------------------|------------|------------|
| leads                       | with lease | yes                 | yes        | yes        |
| leads, ISR below `min_isr`  | with lease | NOT_ENOUGH_REPLICAS | yes        | yes        |
| follows                     | NOT_LEADER | NOT_LEADER          | NOT_LEADER | yes        |
| has no leader, or is fenced | NOT_LEADER | NOT_LEADER          | NOT_LEADER | NOT_LEADER |

Every response from a leader is compared with what would be requested now: after any wait the
role, the epoch or the log may be another.
"""

import asyncio
from typing import Final

from millstream.errors import KafkaCode, KafkaError, LogDirFailed
from millstream.model import TopicId, TopicPartition
from millstream.replication.admission import Refusal, Standing
from millstream.replication.follower_log import do_step
from millstream.replication.following import (
    CheckpointFirst,
    CutBack,
    FetchAnswer,
    FetchPosition,
    StartOver,
    Step,
    begin_following,
    next_fetch,
    take_answer,
)
from millstream.replication.leader import Leader
from millstream.replication.leadership import Leadership
from millstream.replication.node import Node
from millstream.replication.partition import Partition
from millstream.replication.role import Role
from millstream.storage.aborted_index import AbortedTransaction
from millstream.storage.log import Appended, FileRange, Log

_NOT_LEADER: Final = Refusal(KafkaCode.NOT_LEADER_OR_FOLLOWER)
_NOT_ENOUGH_REPLICAS: Final = Refusal(KafkaCode.NOT_ENOUGH_REPLICAS)


class ReplicatedPartition(Partition):
    is_replicated = True

    __slots__ = ("_node", "is_damaged", "leader", "role")

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        partition_log: Log,
        *,
        high_watermark: int,
        node: Node,
    ) -> None:
        super().__init__(
            topic_partition,
            topic_id,
            partition_log,
            leader_id=-1,
            leader_epoch=-1,
            generation=node.generation,
            on_disk_failure=node.on_disk_failure,
        )
        self._node = node
        # The newest role that was applied; its version only grows until the node is fenced.
        self.role: Role = Role.none()
        # Not None exactly while this node leads.
        self.leader: Leader | None = None
        # Being given up: no leader may learn the end of its log.
        self.is_damaged = False
        partition_log.is_sole_replica = False
        # A hint from before the start; nothing is ever truncated by it.
        hinted = max(high_watermark, partition_log.log_start_offset)
        partition_log.high_watermark = min(hinted, partition_log.next_offset)

    # -- roles ------------------------------------------------------------------------

    def apply(self, role: Role, *, now_ms: int) -> None:
        """Take the role in the cluster's state; older states are ignored."""
        if role.version <= self.role.version:
            return
        self._generation.bump()
        if role.leader_id == self._node.broker_id:
            self._lead(role, now_ms=now_ms)
        elif role.leader_id < 0:
            self._stop(role)
        elif (role.leader_id, role.leader_epoch) != (self.leader_id, self.leader_epoch):
            self._follow(role)
        self.role = role

    def stand_by(self) -> None:
        """The node is fenced: it leads and follows nothing until it gets a new role."""
        self._stop(Role.none())
        self.role = Role.none()

    def _lead(self, role: Role, *, now_ms: int) -> None:
        leader = self.leader
        if leader is not None and leader.leadership.leader_epoch == role.leader_epoch:
            leader.adopt(role)
            return
        self._stop(role)
        # Before the first fetch is answered: followers compare their logs with it.
        self.log.epochs.assign(role.leader_epoch, self.log.next_offset)
        self.leader = Leader(self, role, self._node, now_ms=now_ms)
        self.leader.advance()

    def _follow(self, role: Role) -> None:
        self._stop(role)
        begin_following(self.log.epochs, self.log.next_offset)

    def _stop(self, role: Role) -> None:
        self._generation.bump()
        self.leader_id, self.leader_epoch = role.leader_id, role.leader_epoch
        leader, self.leader = self.leader, None
        if leader is not None:
            leader.end(_NOT_LEADER.error())
        self.fetch_waits.wake()

    @property
    def leadership(self) -> Leadership | None:
        return None if self.leader is None else self.leader.leadership

    @property
    def is_leader(self) -> bool:
        return self.leader is not None

    @property
    def has_lease(self) -> bool:
        return self._node.has_lease()

    @property
    def is_settled(self) -> bool:
        """Is the high watermark not below one that an older leader has shown to clients?"""
        leadership = self.leadership
        return leadership is not None and leadership.is_settled(self.log.high_watermark)

    def standing(self) -> Standing:
        """The table at the head of this module. A disk that is offline is KAFKA_STORAGE_ERROR:
        for readers always, for writers unless they are already refused for another reason."""
        offline, leadership = self._offline(), self.leadership
        if leadership is None:
            near_read = _NOT_LEADER if self.leader_id < 0 else None
            return Standing(_NOT_LEADER, _NOT_LEADER, offline or _NOT_LEADER, offline or near_read)
        return Standing(
            write=offline,
            committed_write=offline if leadership.has_enough_in_sync else _NOT_ENOUGH_REPLICAS,
            read=offline,
            near_read=offline,
            # Without the lease another node may already lead, and records that only this node has
            # would be lost. Committed records need the other replicas anyway.
            has_lease=self._node.has_lease,
        )

    def go_offline(self, reason: str) -> None:
        super().go_offline(reason)
        if self.leader is not None:
            self.leader.fail(KafkaError(KafkaCode.KAFKA_STORAGE_ERROR, reason))

    def go_away(self) -> None:
        super().go_away()
        if self.leader is not None:
            self.leader.fail(KafkaError(KafkaCode.UNKNOWN_TOPIC_OR_PARTITION))

    # -- reading ----------------------------------------------------------------------

    def read(self, offset: int, *, max_bytes: int, at_least_one: bool) -> FileRange | None:
        self._check_not_ahead(offset)
        try:
            return super().read(offset, max_bytes=max_bytes, at_least_one=at_least_one)
        except KafkaError as error:
            raise self._doubted(error, offset) from error

    def read_committed(
        self, offset: int, *, max_bytes: int, at_least_one: bool
    ) -> tuple[FileRange | None, list[AbortedTransaction]]:
        self._check_not_ahead(offset)
        try:
            return super().read_committed(offset, max_bytes=max_bytes, at_least_one=at_least_one)
        except KafkaError as error:
            raise self._doubted(error, offset) from error

    def _doubted(self, error: KafkaError, offset: int) -> KafkaError:
        """The same error, after reporting a log that may be the reason."""
        if error.code is KafkaCode.KAFKA_STORAGE_ERROR:
            self._node.on_doubt(self.topic_partition, offset)
        return error

    def _check_not_ahead(self, offset: int) -> None:
        """A follower may be behind what its leader has shown: that is not out of range."""
        if self.leader is None and offset > self.log.next_offset:
            raise KafkaError(KafkaCode.OFFSET_NOT_AVAILABLE)

    # -- leading ----------------------------------------------------------------------

    def require_leader(self) -> Leader:
        """Raises KafkaError."""
        if self.leader is None:
            raise _NOT_LEADER.error()
        return self.leader

    def _note_appended(self, appended: Appended, size_bytes: int) -> None:
        self.fetch_waits.written(size_bytes)
        self.require_leader().note_appended(appended.next_offset, size_bytes)

    def advance(self) -> None:
        """Something happened that may move the high watermark."""
        if self.leader is not None:
            self.leader.advance()

    def wait_deleted(self, offset: int) -> "asyncio.Future[None] | None":
        return self.require_leader().wait_deleted(offset)

    # -- following --------------------------------------------------------------------

    def next_fetch(self) -> FetchPosition | None:
        """What to fetch from the leader; None if no leader is followed."""
        if self.leader is not None or self.leader_id < 0 or self.offline_reason is not None:
            return None
        if self.is_damaged:
            return None
        return next_fetch(self.leader_id, self.leader_epoch, self.log.epochs, self.log.next_offset)

    def take_fetched(
        self,
        asked: FetchPosition,
        answer: FetchAnswer,
        records: memoryview,
        now_ms: int | None = None,
    ) -> Step:
        """Apply a response; return what was done. Raises KafkaError if the disk fails."""
        step = take_answer(asked, self.next_fetch(), answer, self.log.epochs)
        if isinstance(step, CutBack | StartOver):
            if not self._node.may_cut(self.topic_partition, step.offset):
                return CheckpointFirst()
            self._node.was_cut(self.topic_partition)
        before = self.log.high_watermark
        try:
            do_step(self.log, step, records, unclean_epoch=self.role.unclean_epoch, now_ms=now_ms)
        except LogDirFailed as error:
            self._on_disk_failure(str(error))
            raise KafkaError(KafkaCode.KAFKA_STORAGE_ERROR, str(error)) from error
        except OSError as error:
            # Writes report their errors as above: this is producer state that had to be read, or a
            # cut, and both are tried again.
            raise self._read_failed(error) from error
        if self.log.high_watermark > before:
            self.fetch_waits.wake()
        return step
