"""ShareGroupDescribe (77), version 1: members and their assignments."""

from collections.abc import Coroutine
from functools import partial
from typing import Any, Final

from millstream.broker.coordination.coordinators import GroupCoordinators
from millstream.broker.node.state import NodeState
from millstream.broker.requests.group_descriptions import Kind, describe_groups
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import Turns
from millstream.coordinators.decision import Decision
from millstream.coordinators.groups import requests
from millstream.coordinators.share.group import ASSIGNOR, ShareGroup, ShareMember
from millstream.errors import KafkaCode, KafkaError
from millstream.wire.apis.share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupDescription,
    ShareGroupMember,
    ShareMemberAssignment,
    ShareMemberTopicPartitions,
)

_HIDDEN: Final = "The group has described topic(s) that the client is not authorized to describe."


def handle(
    node: NodeState,
    groups: GroupCoordinators,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    body: ShareGroupDescribeRequest,
) -> ShareGroupDescribeResponse | Coroutine[Any, Any, ShareGroupDescribeResponse]:
    kind = Kind(
        find=lambda state, env, group_id: Decision(reply=requests.share_group(state, group_id)),
        describe=partial(_answer, node),
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
        lambda found: ShareGroupDescribeResponse(groups=found),
    )


def _weight(group: ShareGroupDescription) -> int:
    return 100 + sum(
        200
        + sum(len(name) for name in member.subscribed_topic_names)
        + sum(
            50 + len(topic.topic_name) + 4 * len(topic.partitions)
            for topic in member.assignment.topic_partitions
        )
        for member in group.members
    )


def _topics(group: ShareGroupDescription) -> set[str]:
    return {name for member in group.members for name in member.subscribed_topic_names}


def _answer(node: NodeState, group: ShareGroup, operations: int) -> ShareGroupDescription:
    return ShareGroupDescription(
        error_code=KafkaCode.NONE,
        error_message=None,
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=ASSIGNOR,
        members=[_member(node, member_id, member) for member_id, member in group.members.items()],
        authorized_operations=operations,
    )


def _member(node: NodeState, member_id: str, member: ShareMember) -> ShareGroupMember:
    stored = member.stored
    return ShareGroupMember(
        member_id=member_id,
        rack_id=stored.rack_id,
        member_epoch=member.current.epoch,
        client_id=stored.client_id,
        client_host=stored.client_host,
        subscribed_topic_names=list(stored.topics),
        assignment=ShareMemberAssignment(
            topic_partitions=[
                ShareMemberTopicPartitions(
                    topic_id=topic_id, topic_name=topic.name, partitions=list(partitions)
                )
                for topic_id, partitions in member.current.assigned.items()
                if (topic := node.image.topics_by_id.get(topic_id)) is not None
            ]
        ),
    )


def _refuse(group_id: str, error: KafkaError) -> ShareGroupDescription:
    return ShareGroupDescription(
        error_code=error.code,
        error_message=error.message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )
