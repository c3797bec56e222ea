"""Replication between whole nodes: what is acknowledged survives, and roles move.

Covers replication, broker/membership.
"""

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millstream.broker.network import output
from millstream.cluster.lease import Lease
from millstream.errors import KafkaCode
from millstream.model import NO_TOPIC_ID
from millstream.storage import page_cache
from millstream.storage.store import LogStore
from millstream.storage.values import LogConfig
from millstream.wire.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from millstream.wire.apis.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from millstream.wire.apis.delete_topics import DeletableTopic, DeleteTopicsRequest
from millstream.wire.apis.find_coordinator import FindCoordinatorRequest
from millstream.wire.apis.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from millstream.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchTopic
from tests.replication.nodes import Cluster, ask, cluster_of, end_offset, fetch, produce, until
from tests.storage.logs import NOW_MS, append_as_leader, batch
from tests.support.open_node import OpenNode

pytestmark = pytest.mark.slow

# Waited for once. All nodes stand still where this process gets no turn, and who follows must
# not fall behind by that.
LAG_MS = 1_500


def test_an_acknowledged_record_is_on_every_replica_in_sync(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster_of(tmp_path) as cluster:
            await cluster.create()
            leader = await cluster.led()
            assert await produce(leader, 5) == (KafkaCode.NONE, 0)
            for node_id in cluster.nodes:
                assert cluster.replica(node_id).log.next_offset == 5

    asyncio.run(scenario())


def test_a_few_batches_reach_a_follower_in_one_piece_and_many_from_their_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(descriptor: int, position: int, length: int) -> bytearray:
        return bytearray(os.pread(descriptor, length, position))

    # Not every file system can say whether it would have to wait.
    monkeypatch.setattr(page_cache, "read_if_cached", read)

    async def scenario() -> None:
        async with cluster_of(tmp_path) as cluster:
            await cluster.create()
            leader = await cluster.led()
            await cluster.in_sync(1, 2, 3)
            before = output.SENT.by_sendfile
            await produce(leader, value=b"x" * 80_000)
            assert output.SENT.by_sendfile == before
            await produce(leader, value=b"x" * 120_000)
            assert output.SENT.by_sendfile >= before + 240_000
            sources = [cluster.replica(node_id).log.segments.active for node_id in cluster.nodes]
            assert len({one.file.read_at(0, one.size_bytes) for one in sources}) == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("acks", [0, 1])
def test_where_every_replica_syncs_first_records_appear_at_once_whatever_the_acks(
    tmp_path: Path, acks: int
) -> None:
    async def scenario() -> None:
        async with cluster_of(tmp_path) as cluster:
            await cluster.create(flush_messages="1")
            leader = await cluster.led()
            # Without acks there is no answer.
            producing = asyncio.ensure_future(produce(leader, acks=acks))
            # Not only with the next checkpoint, a minute later.
            async with asyncio.timeout(20):
                await until(
                    lambda: cluster.replica(leader.node_id).high_watermark == 1, "committed"
                )
            producing.cancel()
            await asyncio.gather(producing, return_exceptions=True)

    asyncio.run(scenario())


def test_who_does_not_lead_sends_clients_away(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster_of(tmp_path) as cluster:
            await cluster.create(replicas=2)
            leader = await cluster.led()
            for node in cluster.nodes.values():
                if node is not leader:
                    code, _ = await produce(node)
                    assert code is KafkaCode.NOT_LEADER_OR_FOLLOWER
                    found = await fetch(node)
                    assert found.error_code == KafkaCode.NOT_LEADER_OR_FOLLOWER
                    code, _ = await end_offset(node)
                    assert code is KafkaCode.NOT_LEADER_OR_FOLLOWER

    asyncio.run(scenario())


def test_who_only_says_to_be_a_replica_counts_for_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster_of(tmp_path) as cluster:
            await cluster.create()
            leader = await cluster.led()
            await produce(leader, 2)
            other = next(n for n in cluster.nodes if n != leader.node_id)
            # Version 12 has a replica id and no broker epoch.
            for replica_id in (other, 77):
                found = await fetch(leader, 1_000, replica_id=replica_id)
                assert found.error_code == KafkaCode.TOPIC_AUTHORIZATION_FAILED
            follower = cluster.replica(leader.node_id).leadership.follower(other)  # type: ignore[union-attr]
            assert follower is not None
            assert follower.next_offset == 2

    asyncio.run(scenario())


def test_the_successor_of_a_dead_leader_has_everything(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster_of(tmp_path) as cluster:
            await cluster.create()
            first = await cluster.led()
            for _ in range(3):
                assert (await produce(first, 10))[0] is KafkaCode.NONE
            await cluster.kill(first.node_id)
            second = await cluster.led()
            assert second is not first
            assert await produce(second, 1) == (KafkaCode.NONE, 30)
            assert await end_offset(second) == (KafkaCode.NONE, 31)
            # And the one that died follows, and is in sync again.
            await cluster.start(first.node_id)
            await cluster.in_sync(1, 2, 3)
            assert cluster.replica(first.node_id).log.next_offset == 31

    asyncio.run(scenario())


def test_what_only_a_dead_leader_had_is_cut_from_its_log(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster_of(tmp_path) as cluster:
            await cluster.create()
            first = await cluster.led()
            await produce(first, 2)
            # Nobody fetches this one: it is written behind the others' backs.
            lonely = cluster.replica(first.node_id)
            append_as_leader(
                lonely.log, memoryview(batch(7)), leader_epoch=lonely.leader_epoch, now_ms=NOW_MS
            )
            await cluster.kill(first.node_id)
            second = await cluster.led()
            assert await produce(second, 1) == (KafkaCode.NONE, 2)
            await cluster.start(first.node_id)
            await cluster.in_sync(1, 2, 3)
            again = cluster.replica(first.node_id)
            assert again.log.next_offset == 3
            leader_log = cluster.replica(second.node_id).log
            assert again.log.epochs.entries == leader_log.epochs.entries

    asyncio.run(scenario())


def test_with_too_few_in_sync_nothing_is_taken(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster_of(tmp_path) as cluster:
            await cluster.create()
            leader = await cluster.led()
            for node_id in [n for n in cluster.nodes if n != leader.node_id]:
                await cluster.kill(node_id)
            await cluster.in_sync(leader.node_id)
            code, _ = await produce(leader)
            assert code is KafkaCode.NOT_ENOUGH_REPLICAS
            # Who asks for less gets it, and nobody reads it.
            assert (await produce(leader, acks=1))[0] is KafkaCode.NONE
            assert await end_offset(leader) == (KafkaCode.NONE, 0)

    asyncio.run(scenario())


def test_a_follower_that_stays_behind_leaves_and_comes_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = {"replica.lag.time.max.ms": str(LAG_MS)}
        async with cluster_of(tmp_path, settings=settings) as cluster:
            await cluster.create()
            leader = await cluster.led()
            slow_id = next(n for n in cluster.nodes if n != leader.node_id)
            slow = cluster.replica(slow_id)
            replicas = cluster.nodes[slow_id].member
            replicas._fetchers.leave(slow)
            # Acknowledged all the same, once the others need no longer wait for it.
            assert (await produce(leader))[0] is KafkaCode.NONE
            await cluster.in_sync(*(n for n in cluster.nodes if n != slow_id))
            replicas._fetchers.follow(slow, leader.node_id)
            await cluster.in_sync(1, 2, 3)

    asyncio.run(scenario())


def test_a_throttled_replica_catches_up_only_as_fast_as_it_may(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = {
            "replica.lag.time.max.ms": str(LAG_MS),
            "leader.replication.throttled.rate": "1",
            # One batch in each answer.
            "replica.fetch.max.bytes": "1",
        }
        async with cluster_of(tmp_path, settings=settings) as cluster:
            await cluster.create(leader_replication_throttled_replicas="*")
            leader = await cluster.led()
            slow_id = next(n for n in cluster.nodes if n != leader.node_id)
            slow = cluster.replica(slow_id)
            replicas = cluster.nodes[slow_id].member
            replicas._fetchers.leave(slow)
            # In sync, nobody is held back.
            for _ in range(5):
                assert (await produce(leader))[0] is KafkaCode.NONE
            await cluster.in_sync(*(n for n in cluster.nodes if n != slow_id))
            replicas._fetchers.follow(slow, leader.node_id)
            leading = cluster.replica(leader.node_id)
            throttles = leader.member.throttles
            await until(
                lambda: throttles.holds_back_sending(leading, slow_id), "the rate is used up"
            )
            assert slow.log.next_offset < 5
            leader.image.topics["t"].overrides.clear()
            await cluster.in_sync(1, 2, 3)

    asyncio.run(scenario())


def test_a_node_that_lost_its_session_comes_back_by_itself(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster_of(tmp_path) as cluster:
            await cluster.create()
            leader = await cluster.led()
            await produce(leader, 3)
            cluster.lose_session(leader.node_id)
            second = await cluster.led(besides=leader.node_id)
            assert await produce(second) == (KafkaCode.NONE, 3)
            await cluster.in_sync(1, 2, 3)

    asyncio.run(scenario())


def test_a_node_keeps_its_session_while_its_logs_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = LogStore.load

    async def scenario() -> None:
        loop = asyncio.get_running_loop()

        def load_slowly(store: LogStore, configs: Callable[[str], LogConfig]) -> None:
            is_free = threading.Event()
            loop.call_soon_threadsafe(is_free.set)
            # On the loop, this would wait for itself.
            assert is_free.wait(30)
            load(store, configs)

        async with cluster_of(tmp_path) as cluster:
            await cluster.create()
            await cluster.kill(3)
            monkeypatch.setattr(LogStore, "load", load_slowly)
            await cluster.start(3)
            await cluster.in_sync(1, 2, 3)

    asyncio.run(scenario())


def test_a_stopping_node_hands_its_leadership_over_first(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster_of(tmp_path) as cluster:
            await cluster.create()
            first = await cluster.led()
            await produce(first, 3)
            await cluster.nodes.pop(first.node_id).stop()
            second = await cluster.led()
            assert await produce(second) == (KafkaCode.NONE, 3)

    asyncio.run(scenario())


def test_a_deleted_topic_is_gone_everywhere(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster_of(tmp_path) as cluster:
            await cluster.create()
            node = cluster.nodes[1]
            await ask(
                node,
                DeleteTopicsRequest(
                    topics=[DeletableTopic(name="t", topic_id=NO_TOPIC_ID)], timeout_ms=5_000
                ),
                6,
            )
            await until(
                lambda: all(n.partitions.find("t", 0) is None for n in cluster.nodes.values()),
                "no node has the topic",
            )

    asyncio.run(scenario())


def test_a_consumer_reads_from_the_replica_in_its_rack(tmp_path: Path) -> None:
    async def scenario() -> None:
        rack_aware = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
        settings = {"replica.selector.class": rack_aware}
        async with cluster_of(tmp_path, settings=settings) as cluster:
            await cluster.create()
            leader = await cluster.led()
            await produce(leader, 5)
            near = next(n for n in cluster.nodes if n != leader.node_id)
            told = await fetch(leader, rack_id=f"rack-{near}")
            assert told.preferred_read_replica == near
            assert not told.records
            await until(
                lambda: cluster.replica(near).high_watermark == 5, "the follower knows the commit"
            )
            found = await fetch(cluster.nodes[near], rack_id=f"rack-{near}")
            assert (found.error_code, found.high_watermark) == (KafkaCode.NONE, 5)
            assert found.records
            # Ahead of the follower: not out of range, only not there yet.
            ahead = await fetch(cluster.nodes[near], 6, rack_id=f"rack-{near}")
            assert ahead.error_code == KafkaCode.OFFSET_NOT_AVAILABLE
            # Whoever does not say where it is, or is with the leader, reads from the leader.
            for rack_id in ("", f"rack-{leader.node_id}", "rack-9"):
                found = await fetch(leader, rack_id=rack_id)
                assert found.preferred_read_replica == -1
                assert found.records

    asyncio.run(scenario())


def test_a_node_whose_disk_fails_gives_its_leaderships_away_and_is_suspect(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster_of(tmp_path) as cluster:
            await cluster.create()
            first = await cluster.led()
            await produce(first, 3)
            first.fail_disk("made up")
            second = await cluster.led(besides=first.node_id)
            assert await produce(second) == (KafkaCode.NONE, 3)
            await cluster.kill(first.node_id)
            again = await cluster.start(first.node_id)
            assert again.image.incarnations[first.node_id].is_suspect
            await cluster.in_sync(1, 2, 3)
            assert not again.store.last_shutdown.may_have_lost_data()

    asyncio.run(scenario())


async def _delete_records(node: OpenNode, offset: int, timeout_ms: int = 10_000) -> Any:
    answer = await ask(
        node,
        DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)]
                )
            ],
            timeout_ms=timeout_ms,
        ),
        2,
    )
    return answer.topics[0].partitions[0]


def test_records_are_deleted_when_every_replica_in_sync_has_deleted_them(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster_of(tmp_path) as cluster:
            await cluster.create()
            leader = await cluster.led()
            await produce(leader, 5)
            deleted = await _delete_records(leader, 3)
            assert (deleted.error_code, deleted.low_watermark) == (KafkaCode.NONE, 3)
            for node_id in cluster.nodes:
                assert cluster.replica(node_id).log.log_start_offset == 3
            follower = next(n for n in cluster.nodes.values() if n is not leader)
            refused = await _delete_records(follower, 4)
            assert refused.error_code == KafkaCode.NOT_LEADER_OR_FOLLOWER

    asyncio.run(scenario())


def test_a_deletion_that_a_follower_in_sync_does_not_hear_of_times_out(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster_of(tmp_path) as cluster:
            await cluster.create()
            leader = await cluster.led()
            await produce(leader, 5)
            deaf = next(n for n in cluster.nodes.values() if n is not leader)
            await deaf.member._fetchers.stop()
            late = await _delete_records(leader, 3, timeout_ms=100)
            assert late.error_code == KafkaCode.REQUEST_TIMED_OUT
            assert late.low_watermark == -1
            # Out of sync it no longer counts.
            waiting = asyncio.ensure_future(_delete_records(leader, 3))
            await cluster.kill(deaf.node_id)
            assert (await waiting).low_watermark == 3

    asyncio.run(scenario())


async def _find_coordinator(cluster: Cluster, name: str, key_type: int = 0) -> int:
    for _ in range(2_000):
        node = next(iter(cluster.nodes.values()))
        answer = await ask(
            node, FindCoordinatorRequest(key_type=key_type, coordinator_keys=[name]), 4
        )
        found = answer.coordinators[0]
        if found.error_code == KafkaCode.NONE and found.node_id in cluster.nodes:
            return int(found.node_id)
        await asyncio.sleep(0.01)
    raise AssertionError(f"no coordinator for {name}")


async def _commit(cluster: Cluster, group: str, offset: int) -> KafkaCode:
    node_id = await _find_coordinator(cluster, group)
    answer = await ask(
        cluster.nodes[node_id],
        OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            topics=[
                OffsetCommitTopic(
                    name="t",
                    partitions=[
                        OffsetCommitPartition(
                            partition_index=0,
                            committed_offset=offset,
                            committed_leader_epoch=-1,
                            committed_metadata="",
                        )
                    ],
                )
            ],
        ),
        8,
    )
    return KafkaCode(answer.topics[0].partitions[0].error_code)


async def _committed(cluster: Cluster, group: str) -> tuple[KafkaCode, int]:
    node_id = await _find_coordinator(cluster, group)
    answer = await ask(
        cluster.nodes[node_id],
        OffsetFetchRequest(
            group_id=group,
            topics=[OffsetFetchTopic(name="t", partition_indexes=[0])],
            require_stable=False,
        ),
        7,
    )
    if answer.error_code != KafkaCode.NONE:
        return KafkaCode(answer.error_code), -1
    return KafkaCode.NONE, answer.topics[0].partitions[0].committed_offset


def test_a_groups_offsets_survive_its_coordinator(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster_of(tmp_path) as cluster:
            await cluster.create()

            async def is_committed() -> bool:
                return await _commit(cluster, "g", 42) is KafkaCode.NONE

            await _eventually(is_committed)
            await cluster.kill(await _find_coordinator(cluster, "g"))

            async def is_there() -> bool:
                return await _committed(cluster, "g") == (KafkaCode.NONE, 42)

            await _eventually(is_there)

    asyncio.run(scenario())


def test_an_internal_topic_is_not_made_with_fewer_replicas_than_it_should_have(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with cluster_of(tmp_path, nodes=2) as cluster:
            assert len(cluster.nodes[1].image.incarnations) == 2
            answer = await ask(
                cluster.nodes[1], FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4
            )
            assert answer.coordinators[0].error_code == KafkaCode.COORDINATOR_NOT_AVAILABLE
            assert "__consumer_offsets" not in cluster.nodes[1].image.topics
            await cluster.start(3)
            await _find_coordinator(cluster, "g")
            state = cluster.nodes[1].image.partition("__consumer_offsets", 0)
            assert state is not None
            assert len(state.replicas) == 3

    asyncio.run(scenario())


def test_an_internal_topic_keeps_its_partitions(tmp_path: Path) -> None:
    """Groups would be looked for in others of them, and find no offsets."""

    async def scenario() -> None:
        async with cluster_of(tmp_path) as cluster:
            await _find_coordinator(cluster, "g")
            wanted = CreatePartitionsTopic(name="__consumer_offsets", count=5, assignments=None)
            request = CreatePartitionsRequest(
                topics=[wanted], timeout_ms=5_000, validate_only=False
            )
            answer = await ask(cluster.nodes[1], request, 3)
            assert answer.results[0].error_code == KafkaCode.INVALID_PARTITIONS
            assert len(cluster.nodes[1].image.topics["__consumer_offsets"].partitions) == 3

    asyncio.run(scenario())


def test_nodes_go_on_after_a_former_version_added_partitions_to_an_internal_topic(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with cluster_of(tmp_path) as cluster:
            await _find_coordinator(cluster, "g")
            metadata = cluster.nodes[1].node.metadata
            result = await metadata.create_partitions("__consumer_offsets", 5)
            assert result.error is None
            for index in range(5):
                await cluster.led("__consumer_offsets", index)
            # Every node hears of what happens later.
            await cluster.create()

    asyncio.run(scenario())


async def _eventually(is_so: object) -> None:
    for _ in range(1_000):
        if await is_so():  # type: ignore[operator]
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never was")


def test_without_the_lease_readers_begin_and_read_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while ZooKeeper is away: what is committed can be read, by whoever begins too."""
    has_lease = True
    monkeypatch.setattr(Lease, "is_valid", lambda lease: has_lease)

    async def scenario() -> None:
        nonlocal has_lease
        async with cluster_of(tmp_path) as cluster:
            await cluster.create()
            leader = await cluster.led()
            await produce(leader, 3)
            has_lease = False
            code, _ = await produce(leader, 1, acks=1)
            assert code is KafkaCode.NOT_LEADER_OR_FOLLOWER
            assert await produce(leader, 1) == (KafkaCode.NONE, 3)
            assert await end_offset(leader) == (KafkaCode.NONE, 4)
            assert (await fetch(leader)).error_code == KafkaCode.NONE
            has_lease = True

    asyncio.run(scenario())
