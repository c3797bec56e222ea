import asyncio

from millstream.console.local_reading import LocalReader
from millstream.console.reading import read_cluster
from tests.support.console_node import ConsoleNode


def test_the_node_in_place_says_what_the_protocol_says(
    console_node: ConsoleNode, topic: str
) -> None:
    assert console_node.node is not None
    client = console_node.site.console.client
    local = LocalReader(console_node.node)
    assert local.may_read

    async def both() -> None:
        in_place = await read_cluster(client, now_ms=1, local=local)
        asked = await read_cluster(client, now_ms=1)
        assert in_place.topics[topic] == asked.topics[topic]
        assert in_place.cluster_id == asked.cluster_id
        assert in_place.controller_id == asked.controller_id
        [ours], [theirs] = in_place.nodes, asked.nodes
        assert (ours.node_id, ours.port, ours.disk_total_bytes) == (
            theirs.node_id,
            theirs.port,
            theirs.disk_total_bytes,
        )
        assert (ours.leader_count, ours.replica_count) == (
            theirs.leader_count,
            theirs.replica_count,
        )

    asyncio.run_coroutine_threadsafe(both(), console_node.loop).result(60)
