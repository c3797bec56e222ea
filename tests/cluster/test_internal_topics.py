"""The topics of groups and transactions in a cluster: never with fewer replicas than wanted.

Covers broker/coordination, cluster.
"""

from pathlib import Path
from typing import Any

import pytest

from millstream.errors import KafkaCode
from millstream.wire.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from millstream.wire.apis.find_coordinator import FindCoordinatorRequest
from millstream.wire.apis.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.node import MillstreamNode
from tests.support.raw_client import RawClient
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.java]

INTERNAL = {0: "__consumer_offsets", 1: "__transaction_state"}


def start(folder: Path, zookeeper: str, node_id: int) -> MillstreamNode:
    sizes = ["offsets.topic.num.partitions=2", "transaction.state.log.num.partitions=2"]
    settings = [f"node.id={node_id}", f"zookeeper.connect={zookeeper}", *sizes]
    options = [word for each in settings for word in ("--set", each)]
    node = MillstreamNode(folder / f"node-{node_id}", "--dev", *options)
    node.start()
    return node


def find_coordinator(node: MillstreamNode, key_type: int) -> Any:
    with RawClient(node.bootstrap) as client:
        answer = client.ask(
            FindCoordinatorRequest(key_type=key_type, coordinator_keys=["somebody"]), 4
        )
    return answer.coordinators[0]


def metadata(node: MillstreamNode, *names: str) -> dict[str, Any]:
    wanted = [MetadataRequestTopic(name=name) for name in names]
    with RawClient(node.bootstrap) as client:
        answer = client.ask(MetadataRequest(topics=wanted, allow_auto_topic_creation=True), 4)
    return {topic.name: topic for topic in answer.topics}


def test_they_wait_for_as_many_nodes_as_they_have_replicas(
    tmp_path: Path, zookeeper_of_spark: str
) -> None:
    nodes: list[MillstreamNode] = []
    try:
        for node_id in (1, 2):
            nodes.append(start(tmp_path, f"{zookeeper_of_spark}/internal", node_id))
            for key_type, name in INTERNAL.items():
                for _ in range(3):
                    refused = find_coordinator(nodes[-1], key_type)
                    assert refused.error_code == KafkaCode.COORDINATOR_NOT_AVAILABLE
                    assert f"cannot create {name} yet" in refused.error_message
                # One line says so, however often clients try.
                assert nodes[-1].log_text.count(f"cannot create {name} yet") == 1
            for topic in metadata(nodes[0], *INTERNAL.values()).values():
                assert topic.error_code == KafkaCode.LEADER_NOT_AVAILABLE
        nodes.append(start(tmp_path, f"{zookeeper_of_spark}/internal", 3))

        def is_found(key_type: int) -> bool:
            return find_coordinator(nodes[0], key_type).error_code == KafkaCode.NONE

        for key_type, name in INTERNAL.items():
            wait_until(lambda key_type=key_type: is_found(key_type), f"{name} is there")
            for partition in metadata(nodes[0], name)[name].partitions:
                assert sorted(partition.replica_nodes) == [1, 2, 3]
        with RawClient(nodes[0].bootstrap) as client:
            described = client.ask(
                DescribeConfigsRequest(
                    resources=[
                        DescribeConfigsResource(
                            resource_type=2,
                            resource_name="__transaction_state",
                            configuration_keys=["min.insync.replicas"],
                        )
                    ],
                    include_synonyms=False,
                    include_documentation=False,
                ),
                4,
            )
        assert described.results[0].configs[0].value == "2"
    finally:
        for node in nodes:
            node.kill()
