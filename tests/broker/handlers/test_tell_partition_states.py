"""New states of partitions go from the controller to the other nodes, and come from nobody else."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from millstream.cluster import znodes
from millstream.cluster.stores.store import CoordinationFailed, Node
from millstream.errors import KafkaCode
from millstream.model import TopicPartition
from millstream.wire.apis.tell_partition_states import (
    TellPartitionStatesRequest,
    ToldPartitionState,
)
from tests.replication.nodes import ask, cluster_of, until

WHERE = TopicPartition("t", 0)


def test_a_node_believes_other_nodes_and_no_client(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster_of(tmp_path) as cluster:
            await cluster.create("t")
            first, second = cluster.nodes[1], cluster.nodes[2]
            topic = first.image.topics["t"]
            after = replace(topic.partitions[0], writer_token="told")
            data = znodes.encode_partition(after, 1, topic.topic_id)
            version = after.version + 1
            told = ToldPartitionState(topic="t", partition=0, version=version, data=data)
            answer = await ask(second, TellPartitionStatesRequest(states=[told]), 0)
            assert answer.error_code == KafkaCode.CLUSTER_AUTHORIZATION_FAILED
            assert second.image.topics["t"].partitions[0].version < version
            first.member._tell_states({WHERE: Node(data, version)})
            await until(
                lambda: second.image.topics["t"].partitions[0].version == version, "it is told"
            )

    asyncio.run(scenario())


def test_a_leader_that_is_cut_off_from_the_store_alone_learns_who_leads_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent() -> None:
        raise CoordinationFailed("the test has cut the connection")

    async def scenario() -> None:
        async with cluster_of(tmp_path) as cluster:
            await cluster.create("t")
            cut = await cluster.led()
            store = cluster._sessions[cut.node_id]
            with monkeypatch.context() as patch:
                patch.setattr(store, "_open_tree", silent)
                cluster.tree.end_session(store._session)
                image = cut.image.topics["t"]
                await until(lambda: image.partitions[0].leader != cut.node_id, "it is told")
                assert not cut.member.membership.is_fenced
                leader = cluster.nodes[image.partitions[0].leader]
                assert cluster.replica(leader.node_id).is_leader
                assert not cluster.replica(cut.node_id).is_leader

    asyncio.run(scenario())


def test_many_partitions_change_their_leaders_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster_of(tmp_path) as cluster:
            await cluster.create("t", partitions=90)
            await cluster.kill(1)
            for node in (2, 3):
                states = cluster.nodes[node].image.topics["t"].partitions
                await until(
                    lambda states=states: all(one.leader in (2, 3) for one in states), "all are led"
                )
            # A node that was away comes back, although states were not read for a while.
            await cluster.start(1)
            for index in (0, 1, 2):
                await cluster.in_sync(1, 2, 3, topic="t", index=index)

    asyncio.run(scenario())
