"""What clients are told of a node that dies."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millstream.cluster import departed
from millstream.cluster.state import BrokerState
from millstream.errors import KafkaCode
from millstream.wire.apis.describe_cluster import DescribeClusterRequest
from millstream.wire.apis.metadata import MetadataRequest, MetadataRequestTopic
from tests.replication.nodes import ask, cluster_of, until
from tests.support.open_node import OpenNode

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def nobody_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a busy machine takes; for how long it is has tests of its own."""
    monkeypatch.setattr(departed, "SHOWN_SECONDS", 600.0)


async def metadata(node: OpenNode) -> Any:
    return await ask(
        node,
        MetadataRequest(
            topics=[MetadataRequestTopic(name="t")],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        ),
        9,
    )


async def live_nodes(node: OpenNode) -> list[int]:
    answer = await ask(node, DescribeClusterRequest(include_cluster_authorized_operations=False), 0)
    return sorted(one.broker_id for one in answer.brokers)


def test_a_leader_that_seems_dead_is_none_and_a_dead_node_goes_after_its_leaderships(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with cluster_of(tmp_path) as cluster:
            await cluster.create()
            leader = (await cluster.led()).node_id
            other = next(node for node in cluster.nodes.values() if node.node_id != leader)

            with monkeypatch.context() as patched:
                patched.setattr(other.membership, "is_suspect", lambda node: node == leader)
                partition = (await metadata(other)).topics[0].partitions[0]
                assert partition.error_code == KafkaCode.LEADER_NOT_AVAILABLE
                assert partition.leader_id == -1
            answer = await metadata(other)
            assert answer.topics[0].partitions[0].leader_id == leader
            await cluster.kill(leader)
            await until(lambda: leader not in other.image.brokers, "the node is out")
            answer = await metadata(other)
            assert sorted(one.node_id for one in answer.brokers) == [1, 2, 3]
            assert answer.topics[0].partitions[0].leader_id != leader
            assert await live_nodes(other) == sorted({1, 2, 3} - {leader})

    asyncio.run(scenario())


def test_nodes_whose_sessions_end_together_are_named_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka drops whoever an answer does not name, and may not find back."""

    async def scenario() -> None:
        async with cluster_of(tmp_path) as cluster:
            await cluster.create()
            nodes = dict(cluster.nodes)
            epochs = {number: node.image.brokers[number].epoch for number, node in nodes.items()}
            others_have_seen_it_gone = asyncio.Event()
            slow = nodes[1].membership
            assert slow is not None
            register = slow.register

            async def register_late(describe: Callable[[], BrokerState]) -> None:
                await others_have_seen_it_gone.wait()
                await register(describe)

            monkeypatch.setattr(slow, "register", register_late)

            async def all_are_named_until(condition: Callable[[], bool]) -> None:
                async with asyncio.timeout(60):
                    while not condition():
                        for node in nodes.values():
                            named = [one.node_id for one in (await metadata(node)).brokers]
                            assert sorted(named) == [1, 2, 3]

            for number in nodes:
                cluster.lose_session(number)
            await all_are_named_until(
                lambda: all(1 not in nodes[number].image.brokers for number in (2, 3))
            )
            others_have_seen_it_gone.set()
            await all_are_named_until(
                lambda: all(
                    number in node.image.brokers
                    and node.image.brokers[number].epoch > epochs[number]
                    for node in nodes.values()
                    for number in nodes
                )
            )

    asyncio.run(scenario())
