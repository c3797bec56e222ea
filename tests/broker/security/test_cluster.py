"""ACLs in a cluster: nodes replicate and end transactions without any, and all of them obey.

Covers broker/security/authorizer.py, broker/requests/replica_fetch.py, cluster/acls.py.
"""

import asyncio
from pathlib import Path

from confluent_kafka import Producer

from millstream.cluster.metadata import ClusterMetadata
from millstream.errors import KafkaCode
from millstream.security.acl import (
    Binding,
    BindingFilter,
    Entry,
    Operation,
    Permission,
    ResourcePattern,
    ResourceType,
)
from tests.replication.nodes import Cluster, cluster_of, produce, until
from tests.support.named_clients import ACLS

EVERYTHING = ((ResourceType.TOPIC, "*"), (ResourceType.TRANSACTIONAL_ID, "*"))
CLUSTER = ((ResourceType.CLUSTER, "kafka-cluster"),)


async def allow(
    metadata: ClusterMetadata, resources: tuple[tuple[ResourceType, str], ...], *names: Operation
) -> None:
    await metadata.create_acls(
        [
            Binding(
                ResourcePattern(resource_type, name),
                Entry("User:ANONYMOUS", "*", operation, Permission.ALLOW),
            )
            for resource_type, name in resources
            for operation in names
        ]
    )


def transact(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "x"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for partition in range(3):
        producer.produce("t", b"v", partition=partition)
    producer.commit_transaction(30)


def test_nodes_need_no_acls_and_every_node_obeys_them(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        first = cluster.nodes[1]
        await allow(first.node.metadata, EVERYTHING + CLUSTER, Operation.ALL)
        for node in cluster.nodes.values():
            await until(lambda n=node: len(n.image.acls.index) == 3, "all nodes have the ACLs")
        await cluster.create("t", partitions=3, min_insync_replicas="3")
        await cluster.in_sync(1, 2, 3)
        # Nodes verify partitions with the coordinator and write markers for it.
        await asyncio.to_thread(transact, f"127.0.0.1:{first.port}")
        await cluster.nodes[2].node.metadata.delete_acls([BindingFilter()])
        for node in cluster.nodes.values():
            await until(lambda n=node: not len(n.image.acls.index), "no node has ACLs")
        leader = await cluster.led("t", 0)
        code, _ = await produce(leader)
        assert code is KafkaCode.TOPIC_AUTHORIZATION_FAILED
        # Followers have no READ on the topic, and acks=all waits for them.
        await allow(leader.node.metadata, EVERYTHING, Operation.WRITE)
        code, _ = await produce(leader)
        assert code is KafkaCode.NONE
        await cluster.in_sync(1, 2, 3)

    async def play() -> None:
        async with cluster_of(tmp_path, settings=ACLS) as cluster:
            await scenario(cluster)

    asyncio.run(play())
