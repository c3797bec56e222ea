"""Changes to a cluster that the console makes on request. Each raises AskFailed."""

from collections.abc import Mapping, Sequence
from typing import Final

from millstream.console.asking import ClusterClient, check
from millstream.model import TopicPartition
from millstream.wire.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from millstream.wire.apis.create_topics import (
    CreatableConfig,
    CreatableTopic,
    CreateTopicsRequest,
)
from millstream.wire.apis.delete_groups import DeleteGroupsRequest
from millstream.wire.apis.delete_topics import DeleteTopicsRequest
from millstream.wire.apis.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementallyAlterableConfig,
)
from millstream.wire.apis.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)

TOPIC_RESOURCE: Final = 2
_SET: Final = 0
_DELETE: Final = 1
_TIMEOUT_MS: Final = 15_000
_DELETE_BY_NAME_VERSION: Final = 5
_COMMIT_VERSION: Final = 8


async def create_topic(
    client: ClusterClient,
    controller_id: int,
    name: str,
    *,
    partitions: int,
    replication_factor: int,
    configs: Mapping[str, str],
) -> None:
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[],
        configs=[CreatableConfig(name=key, value=value) for key, value in configs.items()],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS)
    [created] = (await client.ask(controller_id, request)).topics
    check(created.error_code, f"topic {name}", created.error_message)


async def delete_topic(client: ClusterClient, controller_id: int, name: str) -> None:
    request = DeleteTopicsRequest(topic_names=[name], timeout_ms=_TIMEOUT_MS)
    answer = await client.ask(controller_id, request, _DELETE_BY_NAME_VERSION)
    [deleted] = answer.responses
    check(deleted.error_code, f"topic {name}", deleted.error_message)


async def add_partitions(client: ClusterClient, controller_id: int, name: str, count: int) -> None:
    topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS, validate_only=False)
    [result] = (await client.ask(controller_id, request)).results
    check(result.error_code, f"topic {name}", result.error_message)


async def alter_topic_config(
    client: ClusterClient, topic: str, name: str, value: str | None
) -> None:
    """None removes the topic's own value, so that the default counts again."""
    change = IncrementallyAlterableConfig(
        name=name, config_operation=_DELETE if value is None else _SET, value=value
    )
    resource = IncrementalAlterConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=topic, configs=[change]
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    [result] = (await client.ask_any(request)).responses
    check(result.error_code, f"{name} of {topic}", result.error_message)


async def delete_group(client: ClusterClient, group_id: str) -> None:
    node_id = await client.coordinator(group_id)
    [result] = (await client.ask(node_id, DeleteGroupsRequest(groups_names=[group_id]))).results
    check(result.error_code, f"group {group_id}")


async def commit_offsets(
    client: ClusterClient, group_id: str, offsets: Sequence[tuple[TopicPartition, int]]
) -> None:
    rows: dict[str, list[OffsetCommitPartition]] = {}
    for where, offset in offsets:
        row = OffsetCommitPartition(
            partition_index=where.partition, committed_offset=offset, committed_metadata=""
        )
        rows.setdefault(where.topic, []).append(row)
    topics = [OffsetCommitTopic(name=name, partitions=each) for name, each in rows.items()]
    node_id = await client.coordinator(group_id)
    request = OffsetCommitRequest(group_id=group_id, topics=topics)
    answer = await client.ask(node_id, request, _COMMIT_VERSION)
    for topic in answer.topics:
        for one in topic.partitions:
            check(one.error_code, f"{topic.name}-{one.partition_index}")
