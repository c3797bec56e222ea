"""Reads the facts of a whole cluster over the protocol: one sample.

A node that does not answer leaves gaps and a line in `failures`; the rest is still shown.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import Final, Protocol

from millstream.console.asking import Address, AskFailed, ClusterClient, error_name
from millstream.console.facts import (
    ClusterFacts,
    GroupFacts,
    NodeFacts,
    PartitionFacts,
    TopicFacts,
)
from millstream.errors import KafkaCode
from millstream.model import TopicPartition
from millstream.wire.apis.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from millstream.wire.apis.list_groups import ListGroupsRequest
from millstream.wire.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from millstream.wire.apis.metadata import MetadataRequest, MetadataResponse, MetadataTopic
from millstream.wire.apis.offset_fetch import OffsetFetchGroup, OffsetFetchRequest

EARLIEST: Final = -2
LATEST: Final = -1
_METADATA_VERSION: Final = 9
_LIST_OFFSETS_VERSION: Final = 7
_OFFSET_FETCH_VERSION: Final = 8
# Groups whose commits one sample reads; the page of a group always reads its own.
_GROUPS_READ_MAX: Final = 1_000
_GROUPS_PER_REQUEST: Final = 100
# Larger answers take the loop too long to decode at once.
_PARTITIONS_PER_REQUEST: Final = 1_000


class Local(Protocol):
    """The node of this process, read in place."""

    @property
    def node_id(self) -> int: ...
    @property
    def may_read(self) -> bool: ...
    async def read(self, now_ms: int) -> ClusterFacts: ...


async def read_cluster(
    client: ClusterClient, *, now_ms: int, local: Local | None = None
) -> ClusterFacts:
    """Raises AskFailed if no node answers at all."""
    own: int | None = None
    if local is not None and local.may_read:
        own = local.node_id
        facts = await local.read(now_ms)
        client.learn({one.node_id: Address(one.host, one.port) for one in facts.nodes})
    else:
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        metadata = await client.ask_any(request, _METADATA_VERSION)
        client.learn({one.node_id: Address(one.host, one.port) for one in metadata.brokers})
        facts = _facts(metadata, now_ms)
    others = [one.node_id for one in facts.nodes if one.node_id != own]
    await asyncio.gather(
        _read_offsets(client, facts, EARLIEST, others),
        _read_offsets(client, facts, LATEST, others),
        *(_read_log_dirs(client, facts, node_id) for node_id in others),
    )
    await _read_groups(client, facts)
    return facts


def _facts(metadata: MetadataResponse, now_ms: int) -> ClusterFacts:
    topics = {one.name or "": _topic(one) for one in metadata.topics}
    partitions = [one for topic in topics.values() for one in topic.partitions]
    nodes = [
        NodeFacts(
            one.node_id,
            one.host,
            one.port,
            one.rack,
            one.node_id == metadata.controller_id,
            leader_count=sum(each.leader == one.node_id for each in partitions),
            replica_count=sum(one.node_id in each.replicas for each in partitions),
        )
        for one in sorted(metadata.brokers, key=lambda broker: broker.node_id)
    ]
    return ClusterFacts(now_ms, metadata.cluster_id or "", metadata.controller_id, nodes, topics)


def _topic(topic: MetadataTopic) -> TopicFacts:
    partitions = [
        PartitionFacts(
            one.partition_index,
            one.leader_id,
            one.leader_epoch,
            list(one.replica_nodes),
            list(one.isr_nodes),
        )
        for one in sorted(topic.partitions, key=lambda each: each.partition_index)
    ]
    return TopicFacts(topic.name or "", topic.is_internal, partitions)


async def _read_offsets(
    client: ClusterClient, facts: ClusterFacts, when: int, nodes: Collection[int]
) -> None:
    """Of the partitions that these nodes lead."""
    leaders: dict[int, list[TopicPartition]] = {}
    for topic in facts.topics.values():
        for one in topic.partitions:
            if one.leader in nodes:
                leaders.setdefault(one.leader, []).append(TopicPartition(topic.name, one.index))
    for leader, places in leaders.items():
        try:
            found = await offsets_on(client, leader, places, when)
        except AskFailed as failed:
            facts.failures.append(str(failed))
            continue
        for where, offset in found.items():
            partition = facts.topics[where.topic].partitions[where.partition]
            if when == EARLIEST:
                partition.start_offset = offset
            else:
                partition.end_offset = offset


async def offsets_on(
    client: ClusterClient, leader: int, places: list[TopicPartition], timestamp_ms: int
) -> dict[TopicPartition, int]:
    """Offsets by time, EARLIEST or LATEST, of partitions that one node leads; without those it
    refuses. -1 where no record is as new."""
    found: dict[TopicPartition, int] = {}
    for first in range(0, len(places), _PARTITIONS_PER_REQUEST):
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for where in places[first : first + _PARTITIONS_PER_REQUEST]:
            row = ListOffsetsPartition(partition_index=where.partition, timestamp=timestamp_ms)
            topics.setdefault(where.topic, []).append(row)
        rows = [ListOffsetsTopic(name=name, partitions=each) for name, each in topics.items()]
        request = ListOffsetsRequest(replica_id=-1, topics=rows)
        answer = await client.ask(leader, request, _LIST_OFFSETS_VERSION)
        for topic in answer.topics:
            for one in topic.partitions:
                if one.error_code == KafkaCode.NONE:
                    found[TopicPartition(topic.name, one.partition_index)] = one.offset
    return found


async def offsets_at(
    client: ClusterClient, facts: ClusterFacts, places: Iterable[TopicPartition], timestamp_ms: int
) -> dict[TopicPartition, int]:
    """The same for partitions of any leaders."""
    leaders: dict[int, list[TopicPartition]] = {}
    for where in places:
        topic = facts.topics.get(where.topic)
        if topic is not None and where.partition < len(topic.partitions):
            leaders.setdefault(topic.partitions[where.partition].leader, []).append(where)
    found: dict[TopicPartition, int] = {}
    for leader, own in leaders.items():
        found.update(await offsets_on(client, leader, own, timestamp_ms))
    return found


async def _read_log_dirs(client: ClusterClient, facts: ClusterFacts, node_id: int) -> None:
    try:
        answer = await client.ask(node_id, DescribeLogDirsRequest(topics=None))
    except AskFailed as failed:
        facts.failures.append(str(failed))
        return
    _take_log_dirs(facts, node_id, answer)


def _take_log_dirs(facts: ClusterFacts, node_id: int, answer: DescribeLogDirsResponse) -> None:
    total = usable = -1
    for directory in answer.results:
        if directory.error_code != KafkaCode.NONE:
            problem = error_name(directory.error_code)
            facts.failures.append(f"node {node_id}: {directory.log_dir}: {problem}")
        if directory.total_bytes >= 0:
            total = max(total, 0) + directory.total_bytes
            usable = max(usable, 0) + directory.usable_bytes
        for topic in directory.topics:
            known = facts.topics.get(topic.name)
            if known is None:
                continue
            for one in topic.partitions:
                if one.partition_index < len(known.partitions):
                    partition = known.partitions[one.partition_index]
                    partition.size_bytes = max(partition.size_bytes, one.partition_size)
    facts.nodes = [
        _with_disk(node, total, usable) if node.node_id == node_id else node for node in facts.nodes
    ]


def _with_disk(node: NodeFacts, total: int, usable: int) -> NodeFacts:
    return NodeFacts(
        node.node_id,
        node.host,
        node.port,
        node.rack,
        node.is_controller,
        total,
        usable,
        node.leader_count,
        node.replica_count,
    )


async def _read_groups(client: ClusterClient, facts: ClusterFacts) -> None:
    coordinators: dict[int, list[GroupFacts]] = {}
    for node in facts.nodes:
        try:
            answer = await client.ask(node.node_id, ListGroupsRequest())
        except AskFailed as failed:
            facts.failures.append(str(failed))
            continue
        for one in answer.groups:
            group = GroupFacts(one.group_id, one.group_state, one.group_type.lower())
            facts.groups[one.group_id] = group
            coordinators.setdefault(node.node_id, []).append(group)
    left = _GROUPS_READ_MAX
    for node_id, groups in coordinators.items():
        for group in groups[left:]:
            group.is_unread = True
        await _read_commits(client, facts, node_id, groups[:left])
        left = max(left - len(groups), 0)


async def _read_commits(
    client: ClusterClient, facts: ClusterFacts, node_id: int, groups: list[GroupFacts]
) -> None:
    for first in range(0, len(groups), _GROUPS_PER_REQUEST):
        some = groups[first : first + _GROUPS_PER_REQUEST]
        try:
            found = await committed_on(client, node_id, [group.group_id for group in some])
        except AskFailed as failed:
            facts.failures.append(str(failed))
            return
        for group in some:
            group.committed = dict(found.get(group.group_id, {}))


async def committed_on(
    client: ClusterClient, node_id: int, group_ids: list[str]
) -> Mapping[str, dict[TopicPartition, int]]:
    """The committed offsets of groups that one node coordinates; without those it refuses."""
    groups = [OffsetFetchGroup(group_id=group_id, topics=None) for group_id in group_ids]
    answer = await client.ask(node_id, OffsetFetchRequest(groups=groups), _OFFSET_FETCH_VERSION)
    return {
        group.group_id: {
            TopicPartition(topic.name, one.partition_index): one.committed_offset
            for topic in group.topics
            for one in topic.partitions
            if one.committed_offset >= 0
        }
        for group in answer.groups
        if group.error_code == KafkaCode.NONE
    }
