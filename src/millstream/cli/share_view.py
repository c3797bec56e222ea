"""A share group as the cluster describes it: its members, and where it is in each partition."""

from collections.abc import Sequence
from dataclasses import dataclass

from millstream.cli.connection import Cluster, check
from millstream.cli.failure import CommandFailed
from millstream.cli.group_view import Group, ListedGroup, Member, list_groups, when_ready
from millstream.client.share_queue import (
    QueuePartition,
    StoredPosition,
    peek_request,
    queue_partition,
    unknown_partition,
)
from millstream.errors import KafkaCode
from millstream.model import TopicPartition
from millstream.wire.apis.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    ShareOffsetsAlteredPartition,
    ShareOffsetsAlteredTopic,
)
from millstream.wire.apis.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    ShareOffsetsWanted,
)
from millstream.wire.apis.peek_share_group import PeekShareGroupRequest
from millstream.wire.apis.share_group_describe import ShareGroupDescribeRequest

KIND = "share"


class ShareGroupMissing(CommandFailed):
    def __init__(self, group_id: str) -> None:
        super().__init__(
            f"share group {group_id} does not exist. "
            "`millstream share list` shows the existing ones"
        )


@dataclass(frozen=True, slots=True)
class SharePosition:
    """None: the group has not begun to read the partition, or its leader does not answer."""

    where: TopicPartition
    start: int | None
    lag: int | None


def list_share_groups(cluster: Cluster, states: Sequence[str] = ()) -> list[ListedGroup]:
    return list_groups(cluster, states=states, kinds=[KIND])


def describe_share_group(cluster: Cluster, group_id: str) -> Group:
    """Raises CommandFailed if there is no such share group."""
    node = cluster.group_coordinator(group_id)
    request = ShareGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
    answer = when_ready(
        lambda: cluster.ask(node, request, 1), lambda answer: answer.groups[0].error_code
    )
    [found] = answer.groups
    if found.error_code == KafkaCode.GROUP_ID_NOT_FOUND:
        raise ShareGroupMissing(group_id)
    check(found.error_code, f"share group {group_id}")
    members = [
        Member(
            one.member_id,
            None,
            one.client_id,
            one.client_host,
            tuple(
                TopicPartition(topic.topic_name, partition)
                for topic in one.assignment.topic_partitions
                for partition in topic.partitions
            ),
        )
        for one in found.members
    ]
    return Group(group_id, KIND, found.group_state, found.assignor_name, members)


def share_positions(cluster: Cluster, group_id: str) -> list[SharePosition]:
    """All partitions that the group has begun to read."""
    node = cluster.group_coordinator(group_id)
    wanted = ShareOffsetsWanted(group_id=group_id, topics=None)
    request = DescribeShareGroupOffsetsRequest(groups=[wanted])
    answer = when_ready(
        lambda: cluster.ask(node, request, 1), lambda answer: answer.groups[0].error_code
    )
    [found] = answer.groups
    check(found.error_code, f"share group {group_id}")
    rows = [
        SharePosition(
            TopicPartition(topic.topic_name, row.partition_index),
            _known(row.start_offset),
            _known(row.lag),
        )
        for topic in found.topics
        for row in topic.partitions
    ]
    return sorted(rows, key=lambda row: row.where)


def peek_share_group(cluster: Cluster, group_id: str) -> list[QueuePartition]:
    """Of all partitions that the group has begun to read. Nothing is acquired."""
    positions = share_positions(cluster, group_id)
    stored = {row.where: StoredPosition(row.start, row.lag) for row in positions}
    request = peek_request(group_id, stored)
    found: dict[TopicPartition, QueuePartition] = {}
    for node in cluster.nodes() if cluster.offers(PeekShareGroupRequest) else ():
        answer = cluster.ask(node, request, 0)
        check(answer.error_code, f"share group {group_id}", answer.error_message)
        for row in answer.partitions:
            one = queue_partition(row, stored[TopicPartition(row.topic, row.partition)])
            found[one.where] = one
    return [found.get(row.where) or unknown_partition(row.where, row.start) for row in positions]


def _known(number: int) -> int | None:
    return number if number >= 0 else None


def set_starts(cluster: Cluster, group_id: str, starts: dict[TopicPartition, int]) -> None:
    """Raises CommandFailed."""
    topics: dict[str, list[ShareOffsetsAlteredPartition]] = {}
    for where, offset in starts.items():
        row = ShareOffsetsAlteredPartition(partition_index=where.partition, start_offset=offset)
        topics.setdefault(where.topic, []).append(row)
    request = AlterShareGroupOffsetsRequest(
        group_id=group_id,
        topics=[
            ShareOffsetsAlteredTopic(topic_name=name, partitions=rows)
            for name, rows in topics.items()
        ],
    )
    node = cluster.group_coordinator(group_id)
    answer = when_ready(lambda: cluster.ask(node, request, 0), lambda answer: answer.error_code)
    check(answer.error_code, f"share group {group_id}")
    for topic in answer.responses:
        for altered in topic.partitions:
            check(altered.error_code, f"{topic.topic_name}-{altered.partition_index}")
