"""A partition with replicas on other nodes: leads, follows, or waits to be told.

The driver of `leadership` and `following` over a real log. As leader it answers followers,
moves the high watermark and lets those go who wait for it; as follower it takes what a
leader answers. Roles come from the cluster's state, one version after the other; who asks
for anything in between roles is told to look for the leader.

What a replica serves, by its state (`Standing`):

| state                       | acks 0, 1  | acks all            | read       | near read  |
|-----------------------------|------------|---------------------|------------|------------|
| leads                       | with lease | yes                 | yes        | yes        |
| leads, ISR below `min_isr`  | with lease | NOT_ENOUGH_REPLICAS | yes        | yes        |
| follows                     | NOT_LEADER | NOT_LEADER          | NOT_LEADER | yes        |
| has no leader, or is fenced | NOT_LEADER | NOT_LEADER          | NOT_LEADER | NOT_LEADER |

Every answer from a leader is checked against what would be asked now: after any wait the
role, the epoch or the log may be another.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Collection
from functools import partial
from typing import Final

from millstream.errors import KafkaCode, KafkaError, LogDirFailed
from millstream.model import TopicId, TopicPartition
from millstream.records.batch import HEADER_BYTES
from millstream.records.control import EndTransactionMarker
from millstream.replication.admission import Refusal, Standing, WriteTerms
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
from millstream.replication.leadership import Leadership, find_divergence
from millstream.replication.node import Node
from millstream.replication.partition import Partition
from millstream.replication.role import Role
from millstream.replication.taking import do_step
from millstream.replication.waiting import OffsetWaits
from millstream.storage.aborted_index import AbortedTransaction
from millstream.storage.log import Appended, Batches, CorruptLog, FileRange, Log
from millstream.wire.fetch import FetchPartition, FetchResult

log = logging.getLogger(__name__)

# Each replica syncs before its position counts: the setting for replicas that share power.
_SYNC_EACH_BATCH: Final = 1

_NOT_LEADER: Final = Refusal(KafkaCode.NOT_LEADER_OR_FOLLOWER)
_NOT_ENOUGH_REPLICAS: Final = Refusal(KafkaCode.NOT_ENOUGH_REPLICAS)


class ReplicatedPartition(Partition):
    is_replicated = True

    __slots__ = (
        "_deleting",
        "_node",
        "_uncommitted",
        "_waiting",
        "is_damaged",
        "leadership",
        "role",
    )

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
        self.role: Role = Role.none()
        self.leadership: Leadership | None = None
        # On its way out: nobody is to hear from it how far its log goes.
        self.is_damaged = False
        # What waits for the high watermark, by the offset that it has to reach.
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        # Ends and sizes of batches that are written and not committed, for fetches that wait.
        self._uncommitted: deque[tuple[int, int]] = deque()
        # Deletions that not every follower has heard of.
        self._deleting = OffsetWaits()
        partition_log.is_sole_replica = False
        # A hint from the last run; nothing is ever cut by it.
        hinted = max(high_watermark, partition_log.log_start_offset)
        partition_log.high_watermark = min(hinted, partition_log.next_offset)

    # -- roles ------------------------------------------------------------------------

    def apply(self, role: Role, *, now_ms: int) -> None:
        """Take the role that the cluster's state gives; older states are no news."""
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
        """The node is fenced: it leads nothing and follows nobody until it is told again."""
        self._stop(Role.none())
        self.role = Role.none()

    def _lead(self, role: Role, *, now_ms: int) -> None:
        leadership = self.leadership
        if leadership is not None and leadership.leader_epoch == role.leader_epoch:
            leadership.adopt(
                replicas=role.replicas, isr=role.isr, min_isr=role.min_isr, version=role.version
            )
            self._refuse_if_too_few()
            self.advance()
            self._release_deletions(leadership)
            return
        self._stop(role)
        # Before the first fetch is answered: followers compare their logs with it.
        self.log.epochs.assign(role.leader_epoch, self.log.next_offset)
        self.leadership = Leadership(
            broker_id=self._node.broker_id,
            leader_epoch=role.leader_epoch,
            start_offset=self.log.next_offset,
            replicas=role.replicas,
            isr=role.isr,
            min_isr=role.min_isr,
            version=role.version,
            now_ms=now_ms,
        )
        log.info(
            "leads %s epoch=%d from=%d isr=%s",
            self.topic_partition,
            role.leader_epoch,
            self.log.next_offset,
            role.isr,
        )
        self.advance()

    def _follow(self, role: Role) -> None:
        self._stop(role)
        begin_following(self.log.epochs, self.log.next_offset)
        log.info(
            "follows %s leader=%d epoch=%d from=%d",
            self.topic_partition,
            role.leader_id,
            role.leader_epoch,
            self.log.next_offset,
        )

    def _stop(self, role: Role) -> None:
        self._generation.bump()
        self.leader_id, self.leader_epoch = role.leader_id, role.leader_epoch
        self.leadership = None
        self._uncommitted.clear()
        self._fail_all(KafkaError(KafkaCode.NOT_LEADER_OR_FOLLOWER))
        self.wake_fetches()

    @property
    def is_leader(self) -> bool:
        return self.leadership is not None

    @property
    def is_settled(self) -> bool:
        """Is the high watermark one that never goes back, for those who saw an older leader's?"""
        return self.leadership is not None and self.leadership.is_settled(self.log.high_watermark)

    def standing(self) -> Standing:
        """The table at the head of this module. A disk that is offline is KAFKA_STORAGE_ERROR:
        to readers in any case, to writers unless something else is against them already."""
        offline, leadership = self._offline(), self.leadership
        if leadership is None:
            near_read = _NOT_LEADER if self.leader_id < 0 else None
            return Standing(_NOT_LEADER, _NOT_LEADER, offline or _NOT_LEADER, offline or near_read)
        return Standing(
            write=offline,
            committed_write=offline if leadership.has_enough_in_sync else _NOT_ENOUGH_REPLICAS,
            read=offline,
            near_read=offline,
            # Without the lease another node may lead already: what only this one has would be
            # lost. What is committed needs the others' word anyway.
            has_lease=self._node.has_lease,
        )

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
        """The same error, after the log was called in question where it may be the reason."""
        if error.code is KafkaCode.KAFKA_STORAGE_ERROR:
            self._node.on_doubt(self, offset)
        return error

    def _check_not_ahead(self, offset: int) -> None:
        """A follower may be behind what its leader has shown: that is not out of range."""
        if self.leadership is None and offset > self.log.next_offset:
            raise KafkaError(KafkaCode.OFFSET_NOT_AVAILABLE)

    def nearest_reader(self, candidates: Collection[int], offset: int) -> int | None:
        """Of these followers, the one in sync that is furthest and has `offset`."""
        leadership = self.leadership
        if leadership is None:
            return None
        best: tuple[int, int] | None = None
        for replica in leadership.isr:
            follower = leadership.follower(replica)
            if (
                replica in candidates
                and follower is not None
                and follower.log_start_offset <= offset <= follower.next_offset
            ):
                best = max(best or (-1, -1), (follower.next_offset, replica))
        return None if best is None else best[1]

    # -- leading: appends and who waits for them --------------------------------------

    def append(self, batches: Batches, terms: WriteTerms, *, now_ms: int) -> Appended:
        appended = super().append(batches, terms, now_ms=now_ms)
        if not appended.is_duplicate:
            self._note_appended(appended, batches.size_bytes)
        return appended

    def append_as_coordinator(self, data: memoryview, *, now_ms: int) -> Appended:
        appended = super().append_as_coordinator(data, now_ms=now_ms)
        self._note_appended(appended, len(data))
        return appended

    def append_marker(
        self, marker: EndTransactionMarker, *, producer_id: int, producer_epoch: int, now_ms: int
    ) -> Appended | None:
        appended = super().append_marker(
            marker, producer_id=producer_id, producer_epoch=producer_epoch, now_ms=now_ms
        )
        if appended is not None:
            self._note_appended(appended, HEADER_BYTES)
        return appended

    def _note_appended(self, appended: Appended, size_bytes: int) -> None:
        self._uncommitted.append((appended.next_offset, size_bytes))
        self.advance()

    def _arrived(self, size_bytes: int) -> None:
        """Written: followers may have it. Consumers wait until it is committed."""
        for wait in tuple(self._fetch_waits or ()):
            if wait.is_replica:
                wait.arrived(size_bytes)

    def advance(self) -> None:
        """Move the high watermark as far as it may, and let go who waited for it."""
        leadership, partition_log = self.leadership, self.log
        if leadership is None:
            return
        before = partition_log.high_watermark
        after = leadership.high_watermark(before, self.counted_offset)
        if after == before:
            return
        assert after <= partition_log.next_offset, "committed beyond the end"
        partition_log.high_watermark = after
        committed_bytes = 0
        while self._uncommitted and self._uncommitted[0][0] <= after:
            committed_bytes += self._uncommitted.popleft()[1]
        self._committed(committed_bytes, was_settled=leadership.is_settled(before))
        while self._waiting and self._waiting[0][0] <= after:
            next_offset, future = self._waiting.popleft()
            synced = self._node.wait_synced(self, next_offset) if leadership.is_alone else None
            if synced is not None:
                synced.add_done_callback(partial(self._pass_on, leadership, future))
            elif not future.done():
                future.set_result(None)

    def _pass_on(
        self,
        leadership: Leadership,
        future: "asyncio.Future[None]",
        synced: "asyncio.Future[None]",
    ) -> None:
        """The disk has it; unless the log was cut meanwhile, and has something else there."""
        if future.done():
            return
        error = None if synced.cancelled() else synced.exception()
        if error is None and (synced.cancelled() or leadership is not self.leadership):
            error = KafkaError(KafkaCode.NOT_LEADER_OR_FOLLOWER)
        if error is None:
            future.set_result(None)
        else:
            _fail(future, error)

    def _committed(self, size_bytes: int, *, was_settled: bool) -> None:
        if not self._fetch_waits:
            return
        if not was_settled:
            self.wake_fetches()
            return
        is_undecided = self.last_stable_offset < self.high_watermark
        for wait in tuple(self._fetch_waits):
            if not wait.is_replica and not (is_undecided and wait.reads_committed):
                wait.arrived(max(size_bytes, 1))

    @property
    def counted_offset(self) -> int:
        """Up to where this replica counts as having the records."""
        if self.log.config.flush_messages <= _SYNC_EACH_BATCH:
            return self.log.synced_offset
        return self.log.next_offset

    def wait_committed(self, next_offset: int) -> "asyncio.Future[None] | None":
        """Done when everything below `next_offset` is committed; None when it is already.

        Fails when the leadership ends, or too few are left in sync to get there."""
        leadership = self.leadership
        future: asyncio.Future[None]
        if leadership is None:
            future = asyncio.get_running_loop().create_future()
            _fail(future, KafkaError(KafkaCode.NOT_LEADER_OR_FOLLOWER))
            return future
        if self.log.high_watermark >= next_offset:
            synced = self._node.wait_synced(self, next_offset) if leadership.is_alone else None
            if synced is None:
                return None
            future = asyncio.get_running_loop().create_future()
            synced.add_done_callback(partial(self._pass_on, leadership, future))
            return future
        future = asyncio.get_running_loop().create_future()
        if self._waiting and self._waiting[-1][0] > next_offset:
            # A duplicate waits for its original, which is before newer appends.
            waiting = sorted([*self._waiting, (next_offset, future)], key=lambda one: one[0])
            self._waiting = deque(waiting)
        else:
            self._waiting.append((next_offset, future))
        return future

    def _refuse_if_too_few(self) -> None:
        if self.leadership is not None and not self.leadership.has_enough_in_sync:
            self._fail_waiting(KafkaError(KafkaCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))

    def _fail_waiting(self, error: KafkaError) -> None:
        waiting, self._waiting = self._waiting, deque()
        for _, future in waiting:
            _fail(future, error)

    def _fail_all(self, error: KafkaError) -> None:
        self._fail_waiting(error)
        self._deleting.fail(error)

    def go_offline(self, reason: str) -> None:
        super().go_offline(reason)
        self._fail_all(KafkaError(KafkaCode.KAFKA_STORAGE_ERROR, reason))

    def go_away(self) -> None:
        super().go_away()
        self._fail_all(KafkaError(KafkaCode.UNKNOWN_TOPIC_OR_PARTITION))

    def wait_deleted(self, offset: int) -> "asyncio.Future[None] | None":
        leadership = self.leadership
        if leadership is None:
            raise KafkaError(KafkaCode.NOT_LEADER_OR_FOLLOWER)
        if leadership.low_watermark(self.log.log_start_offset) >= offset:
            return None
        for wait in tuple(self._fetch_waits or ()):
            if wait.is_replica:
                # The answer tells the follower; its next fetch tells that it has done it.
                wait.wake()
        return self._deleting.add(offset)

    def _release_deletions(self, leadership: Leadership) -> None:
        if not self._deleting.is_empty:
            self._deleting.reached(leadership.low_watermark(self.log.log_start_offset))

    # -- leading: followers' fetches --------------------------------------------------

    def answer_replica(
        self,
        replica_id: int,
        broker_epoch: int,
        fetch: FetchPartition,
        result: FetchResult,
        *,
        max_bytes: int,
        now_ms: int,
    ) -> None:
        """Fill in what a follower gets, and note how far it is. Raises KafkaError.

        A negative `max_bytes` says that the answer is full: nothing, not even one batch."""
        leadership, partition_log = self.leadership, self.log
        if leadership is None:
            raise _NOT_LEADER.error()
        if fetch.current_leader_epoch < leadership.leader_epoch:
            raise KafkaError(KafkaCode.FENCED_LEADER_EPOCH)
        if fetch.current_leader_epoch > leadership.leader_epoch:
            raise KafkaError(KafkaCode.UNKNOWN_LEADER_EPOCH)
        if leadership.follower(replica_id) is None:
            raise KafkaError(KafkaCode.UNKNOWN_TOPIC_OR_PARTITION)
        if leadership.is_stale(replica_id, broker_epoch):
            raise KafkaError(KafkaCode.STALE_BROKER_EPOCH)
        result.log_start_offset = partition_log.log_start_offset
        result.high_watermark = partition_log.high_watermark
        diverging = find_divergence(
            partition_log.epochs, last_epoch=fetch.last_fetched_epoch, offset=fetch.offset
        )
        if diverging is not None:
            if diverging.epoch < 0:
                raise KafkaError(KafkaCode.UNKNOWN_LEADER_EPOCH)
            result.diverging_epoch, result.diverging_offset = diverging.epoch, diverging.end_offset
            return
        found = self._read_for_replica(fetch.offset, max_bytes=max_bytes)
        leadership.fetched(
            replica_id,
            broker_epoch=broker_epoch,
            offset=fetch.offset,
            log_start_offset=fetch.log_start_offset,
            end_offset=partition_log.next_offset,
            now_ms=now_ms,
            is_sent_records=found is not None,
        )
        if leadership.is_stuck(replica_id):
            self._node.on_doubt(self, fetch.offset)
        self.advance()
        self._release_deletions(leadership)
        result.high_watermark = partition_log.high_watermark
        result.records = found

    def _read_for_replica(self, offset: int, *, max_bytes: int) -> FileRange | None:
        """None when there is no room left in the answer, or nothing to read."""
        try:
            found = self.log.read_for_replica(offset, max_bytes=max(max_bytes, 0))
        except (CorruptLog, LogDirFailed, OSError) as error:
            raise self._doubted(self._read_failed(error), offset) from error
        return None if max_bytes < 0 else found

    # -- following --------------------------------------------------------------------

    def next_fetch(self) -> FetchPosition | None:
        """What to ask the leader; None when nobody is followed."""
        if self.leadership is not None or self.leader_id < 0 or self.offline_reason is not None:
            return None
        if self.is_damaged:
            return None
        return next_fetch(self.leader_id, self.leader_epoch, self.log.epochs, self.log.next_offset)

    def take_fetched(self, asked: FetchPosition, answer: FetchAnswer, records: memoryview) -> Step:
        """Do what an answer asks for; what was done. Raises KafkaError when the disk fails."""
        step = take_answer(asked, self.next_fetch(), answer, self.log.epochs)
        if isinstance(step, CutBack | StartOver):
            if not self._node.may_cut(self.topic_partition, step.offset):
                return CheckpointFirst()
            self._node.was_cut(self.topic_partition)
        before = self.log.high_watermark
        try:
            do_step(self.log, step, records)
        except LogDirFailed as error:
            self._on_disk_failure(str(error))
            raise KafkaError(KafkaCode.KAFKA_STORAGE_ERROR, str(error)) from error
        if self.log.high_watermark > before:
            self.wake_fetches()
        return step


def _fail(future: "asyncio.Future[None]", error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
        # The client may have gone; then nobody asks, and that is no news.
        future.exception()
