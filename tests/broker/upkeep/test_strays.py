"""What no topic claims is deleted in good time, and only if nothing speaks against it."""

import asyncio
from pathlib import Path
from uuid import UUID

import pytest

from millstream.broker.upkeep.strays import delete_strays, is_due
from millstream.cluster.state import ClusterImage, TopicState
from millstream.model import NO_TOPIC_ID, TopicId
from millstream.storage.strays import Stray
from millstream.wire.apis.delete_topics import DeletableTopic, DeleteTopicsRequest
from tests.replication.nodes import Cluster, ask, cluster_of, produce, until

GONE, THERE = UUID(int=1), UUID(int=2)


def image(*topic_ids: TopicId) -> ClusterImage:
    found = ClusterImage()
    for number, topic_id in enumerate(topic_ids):
        found.add_topic(TopicState(f"t{number}", topic_id, []))
    return found


@pytest.mark.parametrize(
    ("topic_id", "known", "since_ms", "expected"),
    [
        (GONE, (THERE,), 0, True),
        # Not long enough ago.
        (GONE, (THERE,), 1, False),
        # The cluster knows it.
        (THERE, (THERE,), 0, False),
        # Nobody can say whose it is.
        (NO_TOPIC_ID, (THERE,), 0, False),
        # A cluster that lost all its topics looks like this.
        (GONE, (), 0, False),
    ],
)
def test_a_stray_goes_when_its_topic_is_gone_for_sure(
    topic_id: TopicId, known: tuple[TopicId, ...], since_ms: int, expected: bool
) -> None:
    stray = Stray("/data/t-0.x-stray", topic_id, since_ms)
    assert is_due(stray, image(*known), retention_ms=100, now_ms=100) is expected


async def delete_topic(cluster: Cluster, name: str) -> None:
    node = next(iter(cluster.nodes.values()))
    answer = await ask(
        node,
        DeleteTopicsRequest(
            topics=[DeletableTopic(name=name, topic_id=NO_TOPIC_ID)], timeout_ms=10_000
        ),
        6,
    )
    assert answer.responses[0].error_code == 0


@pytest.mark.slow
def test_what_was_deleted_while_a_node_was_away_goes_there_too(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster_of(tmp_path) as cluster:
            await cluster.create("t")
            await cluster.create("stays")
            leader = await cluster.led("t")
            await produce(leader, 3)
            away = next(n for n in cluster.nodes if n != leader.node_id)
            await cluster.nodes.pop(away).stop()
            await delete_topic(cluster, "t")
            node = await cluster.start(away)
            [stray] = node.store.strays.find()
            await delete_strays(node.node)
            node.store.sweep(node.clock.now_ms())
            assert node.store.strays.find() == [stray]
            again = await restarted(cluster, away, millstream_stray_retention_ms="0")
            await delete_strays(again.node)
            again.store.sweep(again.clock.now_ms())
            assert again.store.strays.find() == []

    asyncio.run(scenario())


async def restarted(cluster: Cluster, node_id: int, **settings: str):
    await cluster.nodes.pop(node_id).stop()
    node = await cluster.start(node_id, **settings)
    await until(lambda: not node.membership.is_fenced, "it is back")
    return node


@pytest.mark.slow
def test_a_topic_of_the_same_name_does_not_get_the_files_of_the_old_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster_of(tmp_path) as cluster:
            await cluster.create("t")
            leader = await cluster.led("t")
            await produce(leader, 3)
            away = next(n for n in cluster.nodes if n != leader.node_id)
            await cluster.nodes.pop(away).stop()
            await delete_topic(cluster, "t")
            await until(lambda: cluster.leader("t") is None, "nobody leads it")
            await cluster.create("t", replicas=2)
            node = await cluster.start(away)
            assert len(node.store.strays.find()) == 1

    asyncio.run(scenario())
