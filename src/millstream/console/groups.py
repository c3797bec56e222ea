"""One consumer group: its members, what each owns, and how far each partition is read."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from millstream.client.group_reset import Move, plan_moves
from millstream.client.start_position import FromTime, Start
from millstream.client.streams_group import read_partitions
from millstream.console.asking import AskFailed, ClusterClient, check
from millstream.console.facts import ClusterFacts
from millstream.console.reading import EARLIEST, LATEST, committed_on, offsets_at
from millstream.console.records import fetch
from millstream.coordinators.codecs.embedded import CONSUMER_PROTOCOL, decode_assignment
from millstream.errors import KafkaCode
from millstream.model import TopicPartition
from millstream.wire.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from millstream.wire.apis.describe_groups import DescribeGroupsRequest
from millstream.wire.apis.share_group_describe import ShareGroupDescribeRequest
from millstream.wire.apis.streams_group_describe import StreamsGroupDescribeRequest

# Partitions whose first unread record is looked up, to say how old it is.
_AGES_MAX: Final = 32
_AGE_BYTES: Final = 4096
_ELSEWHERE: Final = (KafkaCode.GROUP_ID_NOT_FOUND, KafkaCode.UNSUPPORTED_VERSION)
_LOADING_PAUSES_SECONDS: Final = (0.1, 0.3, 1.0, 2.0)


@dataclass(frozen=True, slots=True)
class Member:
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: list[TopicPartition]


@dataclass(frozen=True, slots=True)
class Group:
    group_id: str
    state: str
    kind: str
    assignor: str
    members: list[Member]


@dataclass(frozen=True, slots=True)
class Position:
    """`lag_ms` is the age of the first record that was not read; None if it is not known."""

    where: TopicPartition
    committed: int | None
    end: int | None
    lag: int | None
    lag_ms: int | None
    owner: str | None


async def describe_group(client: ClusterClient, facts: ClusterFacts, group_id: str) -> Group:
    """Raises AskFailed."""
    node_id = await client.coordinator(group_id)
    try:
        return await _describe_consumer(client, node_id, group_id)
    except AskFailed as failed:
        # A group of another protocol, or a cluster without this one.
        if failed.code not in _ELSEWHERE:
            raise
    try:
        return await _describe_streams(client, facts, node_id, group_id)
    except AskFailed as failed:
        if failed.code not in _ELSEWHERE:
            raise
    try:
        return await _describe_share(client, node_id, group_id)
    except AskFailed as failed:
        if failed.code not in _ELSEWHERE:
            raise
    return await _describe_classic(client, node_id, group_id)


async def _describe_share(client: ClusterClient, node_id: int, group_id: str) -> Group:
    request = ShareGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
    [answer] = (await client.ask(node_id, request)).groups
    check(answer.error_code, f"group {group_id}", answer.error_message)
    members = [
        Member(
            one.member_id,
            None,
            one.client_id,
            one.client_host,
            [
                TopicPartition(topic.topic_name, index)
                for topic in one.assignment.topic_partitions
                for index in topic.partitions
            ],
        )
        for one in answer.members
    ]
    return Group(group_id, answer.group_state, "share", answer.assignor_name, members)


async def _describe_consumer(client: ClusterClient, node_id: int, group_id: str) -> Group:
    request = ConsumerGroupDescribeRequest(
        group_ids=[group_id], include_authorized_operations=False
    )
    [answer] = (await client.ask(node_id, request)).groups
    check(answer.error_code, f"group {group_id}", answer.error_message)
    members = [
        Member(
            one.member_id,
            one.instance_id,
            one.client_id,
            one.client_host,
            [
                TopicPartition(topic.topic_name, index)
                for topic in one.assignment.topic_partitions
                for index in topic.partitions
            ],
        )
        for one in answer.members
    ]
    return Group(group_id, answer.group_state, "consumer", answer.assignor_name, members)


async def _describe_streams(
    client: ClusterClient, facts: ClusterFacts, node_id: int, group_id: str
) -> Group:
    request = StreamsGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
    [answer] = (await client.ask(node_id, request)).groups
    check(answer.error_code, f"group {group_id}", answer.error_message)
    counts = {name: len(topic.partitions) for name, topic in facts.topics.items()}
    read = read_partitions(answer, counts)
    members = [
        Member(
            one.member_id,
            one.instance_id,
            one.client_id,
            one.client_host,
            list(read[one.member_id]),
        )
        for one in answer.members
    ]
    return Group(group_id, answer.group_state, "streams", "sticky", members)


async def _describe_classic(client: ClusterClient, node_id: int, group_id: str) -> Group:
    [answer] = (await client.ask(node_id, DescribeGroupsRequest(groups=[group_id]))).groups
    check(answer.error_code, f"group {group_id}", answer.error_message)
    is_of_consumers = answer.protocol_type == CONSUMER_PROTOCOL
    members = [
        Member(
            one.member_id,
            one.group_instance_id,
            one.client_id,
            one.client_host,
            _assigned(bytes(one.member_assignment)) if is_of_consumers else [],
        )
        for one in answer.members
    ]
    return Group(group_id, answer.group_state, "classic", answer.protocol_data, members)


def _assigned(data: bytes) -> list[TopicPartition]:
    try:
        found = decode_assignment(data)
    except ValueError:
        # A client may put anything into it.
        return []
    return [TopicPartition(topic, index) for topic in found for index in found[topic]]


async def committed(client: ClusterClient, group_id: str) -> dict[TopicPartition, int]:
    """Waits a moment while the coordinator loads. Raises AskFailed."""
    for pause in (*_LOADING_PAUSES_SECONDS, None):
        node_id = await client.coordinator(group_id)
        found = await committed_on(client, node_id, [group_id])
        if group_id in found:
            return found[group_id]
        if pause is not None:
            await asyncio.sleep(pause)
    raise AskFailed(f"The offsets of group {group_id} cannot be read now. Try again.")


async def positions(
    client: ClusterClient, facts: ClusterFacts, group: Group, *, now_ms: Callable[[], int]
) -> list[Position]:
    """All partitions that the group has committed or that its members own."""
    commits = await committed(client, group.group_id)
    owners = {where: one.client_id for one in group.members for where in one.partitions}
    places = sorted(commits.keys() | owners.keys())
    ends = await offsets_at(client, facts, places, LATEST)
    found = []
    ages_left = _AGES_MAX
    for where in places:
        offset, end = commits.get(where), ends.get(where)
        lag = None if offset is None or end is None else max(end - offset, 0)
        age_ms = 0 if lag == 0 else None
        if lag and ages_left and offset is not None:
            ages_left -= 1
            age_ms = await _age_ms(client, facts, where, offset, now_ms())
        found.append(Position(where, offset, end, lag, age_ms, owners.get(where)))
    return found


async def _age_ms(
    client: ClusterClient, facts: ClusterFacts, where: TopicPartition, offset: int, now_ms: int
) -> int | None:
    leader = facts.topics[where.topic].partitions[where.partition].leader
    try:
        found = await fetch(
            client, leader, where.topic, where.partition, offset, max_bytes=_AGE_BYTES
        )
    except AskFailed:
        return None
    if not found.batches:
        return None
    # The first batch's own time is near enough, and needs no decoding.
    return max(now_ms - found.batches[0].base_timestamp_ms, 0)


async def plan_reset(
    client: ClusterClient,
    facts: ClusterFacts,
    places: Sequence[TopicPartition],
    commits: Mapping[TopicPartition, int],
    start: Start,
) -> list[Move]:
    """What a reset would do. Raises AskFailed."""
    first = await offsets_at(client, facts, places, EARLIEST)
    end = await offsets_at(client, facts, places, LATEST)
    at: Mapping[TopicPartition, int] = {}
    if isinstance(start, FromTime):
        at = await offsets_at(client, facts, places, start.timestamp_ms)
    return plan_moves(places, commits, start, first=first, end=end, at=at)
