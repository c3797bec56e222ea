"""What commands ask of every node of a cluster."""

import asyncio
from pathlib import Path

import pytest

from millstream.cli.connection import Cluster
from millstream.model import TopicPartition
from tests.replication.nodes import cluster_of, produce

pytestmark = pytest.mark.slow


def test_sizes_are_those_of_all_nodes_whichever_is_asked_first(tmp_path: Path) -> None:
    def ask(bootstrap: str) -> dict[TopicPartition, int]:
        with Cluster(bootstrap) as cluster:
            assert cluster.partition_sizes("nothing") == {}
            return cluster.partition_sizes("t")

    async def scenario() -> None:
        settings = {"min.insync.replicas": "1"}
        async with cluster_of(tmp_path, nodes=2, settings=settings) as cluster:
            await cluster.create(partitions=2, replicas=1)
            for index in range(2):
                await produce(await cluster.led(index=index), 5, index=index)
            for node in cluster.nodes.values():
                sizes = await asyncio.to_thread(ask, f"127.0.0.1:{node.port}")
                assert sorted(where.partition for where in sizes) == [0, 1]
                assert min(sizes.values()) > 0

    asyncio.run(scenario())
