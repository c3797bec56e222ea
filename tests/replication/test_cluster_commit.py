"""When a produce to a replicated partition may be answered."""

import asyncio

import pytest

from millstream.errors import KafkaCode, KafkaError
from millstream.replication.cluster_commit import ClusterCommit
from millstream.replication.replicated import ReplicatedPartition
from millstream.storage.values import LogConfig
from tests.replication.test_replicated import ask, following, produce, replica, role
from tests.storage.logs import make_log_config


def leader(
    commit: ClusterCommit, isr: tuple[int, ...], *, config: LogConfig | None = None
) -> ReplicatedPartition:
    partition = replica(1, config, wait_synced=commit.wait_if_alone)
    partition.apply(role(isr=isr, min_isr=1), now_ms=0)
    return partition


def test_with_others_in_sync_the_disk_is_not_waited_for() -> None:
    async def scenario() -> None:
        commit = ClusterCommit(lambda reason: None, dev=False)
        partition, follower = leader(commit, (1, 2)), following(isr=(1, 2), min_isr=1)
        wait = commit.wait_if_needed(partition, produce(partition), is_acks_all=True)
        assert wait is not None
        ask(partition, follower)
        ask(partition, follower)
        assert wait.done()
        assert partition.log.synced_offset == 0
        await commit.stop()

    asyncio.run(scenario())


def test_alone_the_disk_is_waited_for() -> None:
    async def scenario() -> None:
        commit = ClusterCommit(lambda reason: None, dev=False)
        partition = leader(commit, (1,))
        wait = commit.wait_if_needed(partition, produce(partition), is_acks_all=True)
        assert wait is not None
        await wait
        assert partition.log.synced_offset == 1
        await commit.stop()

    asyncio.run(scenario())


def test_alone_in_development_nothing_is_waited_for() -> None:
    async def scenario() -> None:
        commit = ClusterCommit(lambda reason: None, dev=True)
        partition = leader(commit, (1,))
        assert commit.wait_if_needed(partition, produce(partition), is_acks_all=True) is None
        await commit.stop()

    asyncio.run(scenario())


def test_where_every_replica_syncs_first_so_does_the_leader() -> None:
    async def scenario() -> None:
        commit = ClusterCommit(lambda reason: None, dev=False)
        config = make_log_config(flush_messages=1)
        partition = leader(commit, (1, 2), config=config)
        follower = replica(2, config)
        follower.apply(role(isr=(1, 2), min_isr=1), now_ms=0)
        wait = commit.wait_if_needed(partition, produce(partition), is_acks_all=True)
        assert wait is not None
        ask(partition, follower)
        counted = commit.wait_counted(follower)
        assert counted is not None
        await counted
        ask(partition, follower)
        await wait
        assert partition.log.synced_offset == follower.log.synced_offset == 1
        await commit.stop()

    asyncio.run(scenario())


def test_a_leadership_that_ends_while_the_disk_is_waited_for_is_no_promise() -> None:
    async def scenario() -> None:
        commit = ClusterCommit(lambda reason: None, dev=False)
        partition = leader(commit, (1,))
        wait = commit.wait_if_needed(partition, produce(partition), is_acks_all=True)
        assert wait is not None
        partition.apply(role(2, epoch=2, isr=(2,), version=2), now_ms=0)
        with pytest.raises(KafkaError) as refused:
            await wait
        assert refused.value.code is KafkaCode.NOT_LEADER_OR_FOLLOWER
        await commit.stop()

    asyncio.run(scenario())
