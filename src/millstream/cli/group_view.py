"""A group as the cluster describes it: its members, its commits, its lag.

Sends its own requests: client libraries do not list members of the newer protocols.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from millstream.cli.connection import Cluster, check
from millstream.cli.failure import CommandFailed
from millstream.cli.output import counted
from millstream.cli.topic_view import LATEST, offsets_at
from millstream.client.blocking import Address
from millstream.client.streams_group import read_partitions, source_topics
from millstream.coordinators.codecs.embedded import CONSUMER_PROTOCOL, decode_assignment
from millstream.errors import KafkaCode
from millstream.model import TopicPartition
from millstream.wire.apis.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescription,
)
from millstream.wire.apis.describe_groups import DescribeGroupsGroup, DescribeGroupsRequest
from millstream.wire.apis.list_groups import ListGroupsRequest
from millstream.wire.apis.offset_fetch import OffsetFetchGroup, OffsetFetchRequest
from millstream.wire.apis.streams_group_describe import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescription,
)
from millstream.wire.message import Message

M = TypeVar("M", bound=Message)

_RETRY_SECONDS: Final = 0.05
_RETRIES_MAX: Final = 200
_NOT_YET: Final = {
    KafkaCode.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaCode.COORDINATOR_NOT_AVAILABLE,
    KafkaCode.NOT_COORDINATOR,
}


class GroupMissing(CommandFailed):
    def __init__(self, group_id: str) -> None:
        super().__init__(
            f"group {group_id} does not exist. `millstream group list` shows the existing ones"
        )


def is_alive(group_id: str, members: int | None = None) -> CommandFailed:
    """Why an operation on a group is impossible."""
    how_many = "members" if members is None else counted(members, "member")
    return CommandFailed(
        f"group {group_id} has {how_many}; stop its consumers first. "
        "A killed or static one stays a member until its session times out"
    )


@dataclass(frozen=True, slots=True)
class ListedGroup:
    group_id: str
    kind: str
    state: str
    protocol_type: str


@dataclass(frozen=True, slots=True)
class Member:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    partitions: tuple[TopicPartition, ...]


@dataclass(slots=True)
class Group:
    group_id: str
    kind: str
    state: str
    assignor: str
    members: list[Member] = field(default_factory=list)

    def owner(self, where: TopicPartition) -> Member | None:
        return next((each for each in self.members if where in each.partitions), None)


@dataclass(frozen=True, slots=True)
class Position:
    """A group's position in one partition. None: no commit, or the partition is gone."""

    where: TopicPartition
    committed: int | None
    end: int | None

    @property
    def lag(self) -> int | None:
        if self.committed is None or self.end is None:
            return None
        return max(self.end - self.committed, 0)


def when_ready(ask: Callable[[], M], code_of: Callable[[M], int]) -> M:
    """A response of a coordinator, which may still be loading its topic."""
    for _ in range(_RETRIES_MAX):
        answer = ask()
        if code_of(answer) not in _NOT_YET:
            return answer
        time.sleep(_RETRY_SECONDS)
    return answer


def list_groups(
    cluster: Cluster, *, states: Sequence[str] = (), kinds: Sequence[str] = ()
) -> list[ListedGroup]:
    request = ListGroupsRequest(states_filter=list(states), types_filter=list(kinds))
    found = [one for node in cluster.nodes() for one in _groups_of(cluster, node, request)]
    return sorted(found, key=lambda one: one.group_id)


def _groups_of(cluster: Cluster, node: Address, request: ListGroupsRequest) -> list[ListedGroup]:
    answer = when_ready(lambda: cluster.ask(node, request, 5), lambda answer: answer.error_code)
    check(answer.error_code, "groups")
    return [
        ListedGroup(one.group_id, one.group_type, one.group_state, one.protocol_type)
        for one in answer.groups
    ]


def describe_group(cluster: Cluster, group_id: str) -> Group:
    """Raises CommandFailed if there is no such group."""
    node = cluster.group_coordinator(group_id)
    request = ConsumerGroupDescribeRequest(
        group_ids=[group_id], include_authorized_operations=False
    )
    answer = when_ready(
        lambda: cluster.ask(node, request, 0), lambda answer: answer.groups[0].error_code
    )
    [found] = answer.groups
    if found.error_code == KafkaCode.GROUP_ID_NOT_FOUND:
        return _describe_classic(cluster, node, group_id)
    check(found.error_code, f"group {group_id}")
    return _consumer_group(found)


def _describe_classic(cluster: Cluster, node: Address, group_id: str) -> Group:
    request = DescribeGroupsRequest(groups=[group_id])
    answer = when_ready(
        lambda: cluster.ask(node, request, 5), lambda answer: answer.groups[0].error_code
    )
    [found] = answer.groups
    check(found.error_code, f"group {group_id}")
    if found.group_state == "Dead":
        return _describe_streams(cluster, node, group_id)
    return _classic_group(found)


def _missing(cluster: Cluster, group_id: str) -> CommandFailed:
    if any(one.group_id == group_id for one in list_groups(cluster, kinds=["share"])):
        return CommandFailed(
            f"{group_id} is a share group: `millstream share describe {group_id}` shows it"
        )
    return GroupMissing(group_id)


def _describe_streams(cluster: Cluster, node: Address, group_id: str) -> Group:
    with cluster.connected(node) as connection:
        if not connection.versions.offers(StreamsGroupDescribeRequest.api):
            raise _missing(cluster, group_id)
    request = StreamsGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
    answer = when_ready(
        lambda: cluster.ask(node, request, 0), lambda answer: answer.groups[0].error_code
    )
    [found] = answer.groups
    if found.error_code in (KafkaCode.GROUP_ID_NOT_FOUND, KafkaCode.UNSUPPORTED_VERSION):
        raise _missing(cluster, group_id)
    check(found.error_code, f"group {group_id}", found.error_message)
    return _streams_group(cluster, found)


def _consumer_group(answer: ConsumerGroupDescription) -> Group:
    members = [
        Member(
            one.member_id,
            one.instance_id,
            one.client_id,
            one.client_host,
            tuple(
                TopicPartition(topic.topic_name, partition)
                for topic in one.assignment.topic_partitions
                for partition in topic.partitions
            ),
        )
        for one in answer.members
    ]
    return Group(answer.group_id, "consumer", answer.group_state, answer.assignor_name, members)


def _streams_group(cluster: Cluster, answer: StreamsGroupDescription) -> Group:
    names = source_topics(answer)
    counts = {}
    if names:
        topics = cluster.metadata(*sorted(names)).topics
        counts = {topic.name: len(topic.partitions) for topic in topics if topic.name is not None}
    read = read_partitions(answer, counts)
    members = [
        Member(one.member_id, one.instance_id, one.client_id, one.client_host, read[one.member_id])
        for one in answer.members
    ]
    return Group(answer.group_id, "streams", answer.group_state, "sticky", members)


def _classic_group(answer: DescribeGroupsGroup) -> Group:
    is_of_consumers = answer.protocol_type == CONSUMER_PROTOCOL
    members = [
        Member(
            one.member_id,
            one.group_instance_id,
            one.client_id,
            one.client_host,
            _assigned(bytes(one.member_assignment)) if is_of_consumers else (),
        )
        for one in answer.members
    ]
    return Group(answer.group_id, "classic", answer.group_state, answer.protocol_data, members)


def _assigned(data: bytes) -> tuple[TopicPartition, ...]:
    try:
        found = decode_assignment(data)
    except ValueError:
        # A client may put anything into it.
        return ()
    return tuple(
        TopicPartition(topic, partition)
        for topic, partitions in found.items()
        for partition in partitions
    )


def committed_offsets(cluster: Cluster, group_id: str) -> dict[TopicPartition, int]:
    node = cluster.group_coordinator(group_id)
    request = OffsetFetchRequest(groups=[OffsetFetchGroup(group_id=group_id, topics=None)])
    answer = when_ready(
        lambda: cluster.ask(node, request, 8),
        lambda answer: answer.groups[0].error_code,
    )
    [found] = answer.groups
    check(found.error_code, f"group {group_id}")
    return {
        TopicPartition(topic.name, one.partition_index): one.committed_offset
        for topic in found.topics
        for one in topic.partitions
        if one.committed_offset >= 0
    }


def positions(cluster: Cluster, group: Group) -> list[Position]:
    """All partitions that the group has committed or that its members own."""
    committed = committed_offsets(cluster, group.group_id)
    owned = {where for member in group.members for where in member.partitions}
    places = sorted(committed.keys() | owned)
    ends = offsets_at(cluster, places, LATEST)
    return [Position(where, committed.get(where), ends.get(where)) for where in places]
