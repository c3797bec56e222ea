"""ConsumerGroupDescribe (69), versions 0-1: members, their current and target assignments."""

from collections.abc import Coroutine
from functools import partial
from typing import Any, Final

from millstream.broker.coordination.coordinators import GroupCoordinators
from millstream.broker.node.state import NodeState
from millstream.broker.requests.group_descriptions import Kind, describe_groups
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import Turns
from millstream.coordinators.codecs.changes import Assignment
from millstream.coordinators.consumer.epochs import chosen_assignor
from millstream.coordinators.consumer.group import ConsumerGroup, ConsumerMember
from millstream.coordinators.groups import requests
from millstream.errors import KafkaCode, KafkaError
from millstream.wire.apis.consumer_group_describe import (
    ConsumerGroupAssignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupDescription,
    ConsumerGroupMember,
    ConsumerGroupTopicPartitions,
)

_CLASSIC, _CONSUMER = 0, 1
_HIDDEN: Final = "The group has described topic(s) that the client is not authorized to describe."


def handle(
    node: NodeState,
    groups: GroupCoordinators,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    body: ConsumerGroupDescribeRequest,
) -> ConsumerGroupDescribeResponse | Coroutine[Any, Any, ConsumerGroupDescribeResponse]:
    kind = Kind(
        find=lambda state, env, group_id: requests.describe_consumer(state, group_id),
        describe=partial(_answer, node, groups),
        refuse=_refuse,
        topics=_topics,
        hidden=_HIDDEN,
        weight=_weight,
    )
    return describe_groups(
        groups,
        turns,
        permissions,
        request,
        body,
        kind,
        lambda found: ConsumerGroupDescribeResponse(groups=found),
    )


def _weight(group: ConsumerGroupDescription) -> int:
    return 100 + sum(
        300
        + sum(len(name) for name in member.subscribed_topic_names)
        + sum(
            50 + len(topic.topic_name) + 4 * len(topic.partitions)
            for assignment in (member.assignment, member.target_assignment)
            for topic in assignment.topic_partitions
        )
        for member in group.members
    )


def _topics(group: ConsumerGroupDescription) -> set[str]:
    return {
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    } | {name for member in group.members for name in member.subscribed_topic_names}


def _answer(
    node: NodeState, groups: GroupCoordinators, group: ConsumerGroup, operations: int
) -> ConsumerGroupDescription:
    stored = {member_id: member.stored for member_id, member in group.members.items()}
    return ConsumerGroupDescription(
        error_code=KafkaCode.NONE,
        error_message=None,
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=chosen_assignor(stored, groups.settings.assignors),
        members=[
            _member(node, member_id, member, group.target.get(member_id, {}))
            for member_id, member in group.members.items()
        ],
        authorized_operations=operations,
    )


def _member(
    node: NodeState,
    member_id: str,
    member: ConsumerMember,
    target: Assignment,
) -> ConsumerGroupMember:
    stored = member.stored
    return ConsumerGroupMember(
        member_id=member_id,
        instance_id=stored.instance_id,
        rack_id=stored.rack_id,
        member_epoch=member.current.epoch,
        client_id=stored.client_id,
        client_host=stored.client_host,
        subscribed_topic_names=list(stored.topics),
        subscribed_topic_regex=stored.pattern,
        assignment=_assignment(node, member.current.assigned),
        target_assignment=_assignment(node, target),
        member_type=_CLASSIC if member.speaks_classic else _CONSUMER,
    )


def _assignment(node: NodeState, assignment: Assignment) -> ConsumerGroupAssignment:
    return ConsumerGroupAssignment(
        topic_partitions=[
            ConsumerGroupTopicPartitions(
                topic_id=topic_id, topic_name=topic.name, partitions=list(partitions)
            )
            for topic_id, partitions in assignment.items()
            if (topic := node.image.topics_by_id.get(topic_id)) is not None
        ]
    )


def _refuse(group_id: str, error: KafkaError) -> ConsumerGroupDescription:
    return ConsumerGroupDescription(
        error_code=error.code,
        error_message=error.message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )
