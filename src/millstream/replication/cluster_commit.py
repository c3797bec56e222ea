"""When records of replicated partitions are safe: committed, and synced if no other replica
has them.

Group commit still runs underneath: it brings everything to the disk, and notifies
partitions that count only synced records.
`leader` holds the waiting producers, and fails them when the ISR falls below the minimum.
"""

import asyncio
from collections.abc import Callable

from millstream.errors import KafkaCode, KafkaError
from millstream.replication.group_commit import GroupCommit
from millstream.replication.partition import Partition
from millstream.replication.replicated import ReplicatedPartition
from millstream.replication.waiting import fail


class ClusterCommit(GroupCommit):
    """`dev` considers the page cache safe: a killed process loses nothing."""

    def __init__(self, on_failure: Callable[[str], None], *, dev: bool) -> None:
        super().__init__(on_failure)
        self._is_dev = dev

    def wait_if_needed(
        self, partition: Partition, next_offset: int, *, is_acks_all: bool
    ) -> "asyncio.Future[None] | None":
        if not isinstance(partition, ReplicatedPartition):
            return super().wait_if_needed(partition, next_offset, is_acks_all=is_acks_all)
        if partition.counted_offset < next_offset:
            # It is not committed before that, whatever the acks.
            self.request(partition)
        if not is_acks_all:
            if self._is_dev:
                return None
            return super().wait_if_needed(partition, next_offset, is_acks_all=False)
        if partition.leader is None:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            fail(future, KafkaError(KafkaCode.NOT_LEADER_OR_FOLLOWER))
            return future
        return partition.leader.wait_committed(next_offset)

    def wait_counted(self, partition: ReplicatedPartition) -> "asyncio.Future[None] | None":
        """What a follower waits for before its next fetch, if each replica syncs first."""
        if partition.counted_offset >= partition.log.next_offset:
            return None
        return self.wait_synced(partition, partition.log.next_offset)

    def wait_if_alone(
        self, partition: Partition, next_offset: int
    ) -> "asyncio.Future[None] | None":
        """For partitions whose leader is the only in-sync replica."""
        if self._is_dev or partition.log.synced_offset >= next_offset:
            return None
        return self.wait_synced(partition, next_offset)

    def _release(self, partition: Partition) -> None:
        super()._release(partition)
        if isinstance(partition, ReplicatedPartition):
            partition.advance()
