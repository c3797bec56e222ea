"""One leadership of this node over a partition, from beginning to end.

Drives `leadership` over the real log: answers followers, moves the high watermark, and
releases the requests that wait for it. They belong to this leadership alone: when it ends,
all of them fail, and a new leadership begins with none.
"""

import asyncio
from collections import deque
from functools import partial

from millstream.errors import KafkaCode, KafkaError
from millstream.replication.leadership import Leadership, find_divergence
from millstream.replication.node import Node
from millstream.replication.partition import Partition
from millstream.replication.role import Role
from millstream.replication.waiting import CommitWaits, OffsetWaits, fail
from millstream.storage.values import FileRange
from millstream.wire.fetch import FetchPartition, FetchResult


class Leader:
    __slots__ = (
        "_deletions",
        "_has_ended",
        "_log",
        "_node",
        "_partition",
        "_uncommitted",
        "_waits",
        "leadership",
    )

    def __init__(self, partition: Partition, role: Role, node: Node, *, now_ms: int) -> None:
        self._partition = partition
        self._log = partition.log
        self._node = node
        self.leadership = Leadership(
            broker_id=node.broker_id,
            leader_epoch=role.leader_epoch,
            start_offset=partition.log.next_offset,
            replicas=role.replicas,
            isr=role.isr,
            min_isr=role.min_isr,
            version=role.version,
            now_ms=now_ms,
        )
        self._waits = CommitWaits()
        # Ends and sizes of batches that are written and not committed, in order.
        self._uncommitted: deque[tuple[int, int]] = deque()
        # Deletions that not every follower has applied.
        self._deletions = OffsetWaits()
        self._has_ended = False

    def adopt(self, role: Role) -> None:
        """The store has another state in the same leader epoch."""
        leadership = self.leadership
        leadership.adopt(
            replicas=role.replicas, isr=role.isr, min_isr=role.min_isr, version=role.version
        )
        if not leadership.has_enough_in_sync:
            self._waits.fail(KafkaError(KafkaCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
        self.advance()
        self._release_deletions()

    def end(self, error: KafkaError) -> None:
        """Fail everything that waits here."""
        self._has_ended = True
        self.fail(error)

    def fail(self, error: KafkaError) -> None:
        self._waits.fail(error)
        self._deletions.fail(error)

    def offsets_awaited(self) -> tuple[list[int], list[int]]:
        """Of each request that waits: the high watermark that a produce needs, and the first
        offset that a deletion leaves on all replicas."""
        return self._waits.offsets, self._deletions.offsets

    # -- appends and their waiters ----------------------------------------------------

    def note_appended(self, next_offset: int, size_bytes: int) -> None:
        others_are_behind = bool(self._uncommitted)
        self._uncommitted.append((next_offset, size_bytes))
        # Where what was there before is not committed, something else holds that back: followers,
        # or the disk.
        if not others_are_behind:
            self.advance()

    def advance(self) -> None:
        """Move the high watermark as far as possible, and release its waiters."""
        leadership, log = self.leadership, self._log
        before = log.high_watermark
        if before == log.next_offset:
            return
        after = leadership.high_watermark(before, self._partition.counted_offset)
        if after == before:
            return
        assert after <= log.next_offset, "committed beyond the end"
        log.high_watermark = after
        committed_bytes = 0
        while self._uncommitted and self._uncommitted[0][0] <= after:
            committed_bytes += self._uncommitted.popleft()[1]
        self._release_fetches(committed_bytes, was_settled=leadership.is_settled(before))
        for next_offset, future in self._waits.reached(after):
            synced = self._wait_synced(next_offset)
            if synced is not None:
                synced.add_done_callback(partial(self._pass_on, future))
            elif not future.done():
                future.set_result(None)

    def _release_fetches(self, size_bytes: int, *, was_settled: bool) -> None:
        waits = self._partition.fetch_waits
        if not was_settled:
            waits.wake()
        elif waits.waiting:
            try:
                is_undecided = self._partition.last_stable_offset < self._log.high_watermark
            except KafkaError:
                # The log cannot be read back, as who waits finds out. Producers must not wait for
                # that: their records are committed.
                self._node.on_doubt(self._partition.topic_partition, self._log.next_offset - 1)
                waits.wake()
                return
            waits.committed(max(size_bytes, 1), is_undecided=is_undecided)

    def wait_committed(self, next_offset: int) -> "asyncio.Future[None] | None":
        """Done when everything below `next_offset` is committed; None if it already is.

        Fails if the leadership ends, or too few replicas are left in sync."""
        if self._log.high_watermark < next_offset:
            return self._waits.add(next_offset)
        synced = self._wait_synced(next_offset)
        if synced is None:
            return None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        synced.add_done_callback(partial(self._pass_on, future))
        return future

    def _wait_synced(self, next_offset: int) -> "asyncio.Future[None] | None":
        """What else makes a committed record safe: the disk, if no other replica has it."""
        if not self.leadership.is_alone:
            return None
        return self._node.wait_synced(self._partition, next_offset)

    def _pass_on(self, future: "asyncio.Future[None]", synced: "asyncio.Future[None]") -> None:
        """The disk has it, unless the log was cut in the meantime and has other records there."""
        if future.done():
            return
        error = None if synced.cancelled() else synced.exception()
        if error is None and (synced.cancelled() or self._has_ended):
            error = KafkaError(KafkaCode.NOT_LEADER_OR_FOLLOWER)
        if error is None:
            future.set_result(None)
        else:
            fail(future, error)

    def wait_deleted(self, offset: int) -> "asyncio.Future[None] | None":
        """Done when no in-sync replica has anything below `offset`; None if that is so already."""
        if self.leadership.low_watermark(self._log.log_start_offset) >= offset:
            return None
        # The response carries the offset to the follower; its next fetch confirms it.
        self._partition.fetch_waits.wake_replicas()
        return self._deletions.add(offset)

    def _release_deletions(self) -> None:
        if not self._deletions.is_empty:
            self._deletions.reached(self.leadership.low_watermark(self._log.log_start_offset))

    # -- followers' fetches -----------------------------------------------------------

    def answer(
        self,
        replica_id: int,
        broker_epoch: int,
        fetch: FetchPartition,
        result: FetchResult,
        *,
        max_bytes: int,
        now_ms: int,
    ) -> None:
        """Fill in what a follower gets, and record its position. Raises KafkaError.

        A negative `max_bytes` means that the response is full: nothing, not even one batch."""
        leadership, log = self.leadership, self._log
        self._check_follower(replica_id, broker_epoch, fetch.current_leader_epoch)
        result.log_start_offset = log.log_start_offset
        result.high_watermark = log.high_watermark
        diverging = find_divergence(
            log.epochs, last_epoch=fetch.last_fetched_epoch, offset=fetch.offset
        )
        if diverging is not None:
            if diverging.epoch < 0:
                raise KafkaError(KafkaCode.UNKNOWN_LEADER_EPOCH)
            result.diverging_epoch, result.diverging_offset = diverging.epoch, diverging.end_offset
            return
        found = self._read(fetch.offset, max_bytes=max_bytes)
        leadership.fetched(
            replica_id,
            broker_epoch=broker_epoch,
            offset=fetch.offset,
            log_start_offset=fetch.log_start_offset,
            end_offset=log.next_offset,
            now_ms=now_ms,
            is_sent_records=found is not None,
        )
        if leadership.is_stuck(replica_id):
            self._node.on_doubt(self._partition.topic_partition, fetch.offset)
        self.advance()
        self._release_deletions()
        result.high_watermark = log.high_watermark
        result.records = found

    def _check_follower(self, replica_id: int, broker_epoch: int, leader_epoch: int) -> None:
        leadership = self.leadership
        if leader_epoch < leadership.leader_epoch:
            raise KafkaError(KafkaCode.FENCED_LEADER_EPOCH)
        if leader_epoch > leadership.leader_epoch:
            raise KafkaError(KafkaCode.UNKNOWN_LEADER_EPOCH)
        if leadership.follower(replica_id) is None:
            raise KafkaError(KafkaCode.UNKNOWN_TOPIC_OR_PARTITION)
        if leadership.is_stale(replica_id, broker_epoch):
            raise KafkaError(KafkaCode.STALE_BROKER_EPOCH)

    def _read(self, offset: int, *, max_bytes: int) -> FileRange | None:
        """None if there is no room left in the response, or nothing to read."""
        try:
            found = self._partition.read_for_replica(offset, max_bytes=max(max_bytes, 0))
        except KafkaError as error:
            if error.code is KafkaCode.KAFKA_STORAGE_ERROR:
                self._node.on_doubt(self._partition.topic_partition, offset)
            raise
        return None if max_bytes < 0 else found
