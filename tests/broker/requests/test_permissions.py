"""What a client without permissions sees: nothing, or as little as in Kafka."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from millstream.errors import KafkaCode
from millstream.security.acl import Operation, ResourceType
from millstream.security.authorization import all_operations
from millstream.wire.apis.create_acls import AclCreation, CreateAclsRequest
from millstream.wire.apis.create_topics import CreatableTopic, CreateTopicsRequest
from millstream.wire.apis.delete_topics import DeletableTopic, DeleteTopicsRequest
from millstream.wire.apis.describe_cluster import DescribeClusterRequest
from millstream.wire.apis.describe_groups import DescribeGroupsRequest
from millstream.wire.apis.describe_topic_partitions import DescribeTopicPartitionsRequest
from millstream.wire.apis.find_coordinator import FindCoordinatorRequest
from millstream.wire.apis.list_groups import ListGroupsRequest
from millstream.wire.apis.metadata import MetadataRequest, MetadataRequestTopic
from millstream.wire.apis.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from millstream.wire.apis.offset_fetch import OffsetFetchGroup, OffsetFetchRequest
from millstream.wire.message import NO_OPERATIONS
from tests.support.broker import Broker
from tests.support.named_clients import credulous_broker
from tests.support.raw_client import RawClient

READABLE = 1 << Operation.READ | 1 << Operation.DESCRIBE


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with credulous_broker({"auto.create.topics.enable": "true"}) as running:
        with RawClient(running.bootstrap, client_id="root") as root:
            topics = [
                CreatableTopic(
                    name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
                )
                for name in ("seen", "hidden")
            ]
            root.ask(CreateTopicsRequest(topics=topics), 5)
            root.ask(MetadataRequest(topics=[]), 12)
            commit(root, "g-seen", "seen", "hidden")
            commit(root, "g-hidden", "seen")
            allow(root, ResourceType.TOPIC, "seen", Operation.READ)
            allow(root, ResourceType.GROUP, "g-seen", Operation.READ)
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap, client_id="ann") as connected:
        yield connected


@pytest.fixture
def root(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap, client_id="root") as connected:
        yield connected


def allow(root: RawClient, resource_type: int, name: str, operation: int) -> None:
    creation = AclCreation(
        resource_type=resource_type,
        resource_name=name,
        resource_pattern_type=3,
        principal="User:ann",
        host="*",
        operation=operation,
        permission_type=3,
    )
    [result] = root.ask(CreateAclsRequest(creations=[creation]), 3).results
    assert result.error_code == 0, result


def commit(root: RawClient, group: str, *topics: str) -> None:
    root.ask(FindCoordinatorRequest(key=group), 3)
    partition = OffsetCommitPartition(partition_index=0, committed_offset=1, committed_metadata="")
    wanted = [OffsetCommitTopic(name=name, partitions=[partition]) for name in topics]
    answer = root.ask(OffsetCommitRequest(group_id=group, topics=wanted), 8)
    assert {one.error_code for topic in answer.topics for one in topic.partitions} == {0}


def metadata(client: RawClient, *names: str, version: int = 12, **more: Any) -> Any:
    wanted = [MetadataRequestTopic(name=name) for name in names] if names else None
    return client.ask(MetadataRequest(topics=wanted, **more), version)


def test_lists_show_what_may_be_seen(client: RawClient, root: RawClient) -> None:
    assert [topic.name for topic in metadata(client).topics] == ["seen"]
    assert {"seen", "hidden"} <= {topic.name for topic in metadata(root).topics}
    described = client.ask(DescribeTopicPartitionsRequest(topics=[]), 0)
    assert [topic.name for topic in described.topics] == ["seen"]
    groups = client.ask(ListGroupsRequest(), 4).groups
    assert [group.group_id for group in groups] == ["g-seen"]


def test_a_topic_that_may_not_be_seen_is_not_told_from_one_that_is_not_there(
    client: RawClient,
) -> None:
    found = metadata(client, "hidden", "absent", allow_auto_topic_creation=False).topics
    for topic in found:
        assert topic.error_code == KafkaCode.TOPIC_AUTHORIZATION_FAILED
        assert (topic.topic_id.int, topic.partitions) == (0, [])


def test_by_its_id_it_is_unknown(client: RawClient, root: RawClient) -> None:
    [hidden] = metadata(root, "hidden").topics
    for topic_id in (hidden.topic_id, uuid.UUID(int=5)):
        wanted = [MetadataRequestTopic(topic_id=topic_id, name=None)]
        [found] = client.ask(MetadataRequest(topics=wanted), 12).topics
        assert (found.error_code, found.name) == (KafkaCode.UNKNOWN_TOPIC_ID, None)
    # A deletion does not show the name that belongs to an id either.
    wanted_id = [DeletableTopic(topic_id=hidden.topic_id)]
    [refused] = client.ask(DeleteTopicsRequest(topics=wanted_id, timeout_ms=1000), 6).responses
    assert (refused.error_code, refused.name) == (KafkaCode.TOPIC_AUTHORIZATION_FAILED, None)


def test_creating_a_topic_on_first_use_needs_create(client: RawClient, root: RawClient) -> None:
    allow(root, ResourceType.TOPIC, "new", Operation.WRITE)
    [denied] = metadata(client, "new").topics
    assert denied.error_code == KafkaCode.TOPIC_AUTHORIZATION_FAILED
    assert "new" not in {topic.name for topic in metadata(root).topics}
    allow(root, ResourceType.TOPIC, "new", Operation.CREATE)
    [created] = metadata(client, "new").topics
    assert created.error_code == 0
    # Not shown, without DESCRIBE_CONFIGS: what the topic looks like.
    topic = CreatableTopic(
        name="newer", num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    allow(root, ResourceType.TOPIC, "newer", Operation.CREATE)
    [newer] = client.ask(CreateTopicsRequest(topics=[topic]), 7).topics
    assert (newer.error_code, newer.topic_config_error_code) == (0, 29)
    assert (newer.configs, newer.num_partitions) == (None, -1)


def test_offsets_of_topics_that_may_not_be_seen_are_left_out(client: RawClient) -> None:
    group = OffsetFetchGroup(group_id="g-seen", topics=None)
    [found] = client.ask(OffsetFetchRequest(groups=[group]), 8).groups
    assert (found.error_code, [topic.name for topic in found.topics]) == (0, ["seen"])


def test_operations_are_shown_on_request(client: RawClient, root: RawClient) -> None:
    asked = {"include_topic_authorized_operations": True}
    assert metadata(client, "seen", **asked).topics[0].topic_authorized_operations == READABLE
    [topic] = metadata(root, "seen", **asked).topics
    assert topic.topic_authorized_operations == all_operations(ResourceType.TOPIC)
    assert metadata(root, "seen").topics[0].topic_authorized_operations == NO_OPERATIONS
    request = DescribeGroupsRequest(groups=["g-seen"], include_authorized_operations=True)
    assert client.ask(request, 5).groups[0].authorized_operations == READABLE
    for include, of_root, of_ann in (
        (True, all_operations(ResourceType.CLUSTER), 0),
        (False, NO_OPERATIONS, NO_OPERATIONS),
    ):
        cluster = DescribeClusterRequest(include_cluster_authorized_operations=include)
        assert root.ask(cluster, 0).cluster_authorized_operations == of_root
        answer = client.ask(cluster, 0)
        assert (answer.error_code, answer.cluster_authorized_operations) == (0, of_ann)
        assert answer.brokers


def test_without_an_authorizer_every_operation_is_shown() -> None:
    with Broker(topics={"t": 1}) as plain, RawClient(plain.bootstrap) as anybody:
        [topic] = metadata(anybody, "t", include_topic_authorized_operations=True).topics
        assert topic.topic_authorized_operations == all_operations(ResourceType.TOPIC)
