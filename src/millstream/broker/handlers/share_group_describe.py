"""ShareGroupDescribe (77), version 1: members and their assignments."""

from collections.abc import Coroutine
from typing import Any, Final

from millstream.broker.coordination.coordinators import GroupCoordinators
from millstream.broker.node.state import NodeState
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import Turns
from millstream.coordinators.decision import Decision
from millstream.coordinators.groups import requests
from millstream.coordinators.share.group import ASSIGNOR, ShareGroup, ShareMember
from millstream.errors import KafkaCode, KafkaError
from millstream.security.acl import ResourceType
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
    return turns.answer_each(
        request,
        dict.fromkeys(body.group_ids),
        lambda group_id: _describe(node, groups, permissions, request, body, group_id),
        lambda found: ShareGroupDescribeResponse(groups=found),
    )


def _describe(
    node: NodeState,
    groups: GroupCoordinators,
    permissions: Permissions,
    request: Request,
    body: ShareGroupDescribeRequest,
    group_id: str,
) -> ShareGroupDescription | Coroutine[Any, Any, ShareGroupDescription]:
    denied = permissions.denial(request, ResourceType.GROUP, group_id)
    if denied is not None:
        return _refuse(group_id, denied.error())

    def show(group: ShareGroup) -> ShareGroupDescription:
        names = group.subscribed_topics()
        if not all(permissions.allows(request, ResourceType.TOPIC, name) for name in names):
            return _refuse(group_id, KafkaError(KafkaCode.TOPIC_AUTHORIZATION_FAILED, _HIDDEN))
        found = _answer(node, group)
        if body.include_authorized_operations:
            operations = permissions.operations(request, ResourceType.GROUP, group_id)
            found.authorized_operations = operations
        return found

    return groups.ask(
        group_id,
        lambda state, env: Decision(reply=requests.share_group(state, group_id)),
        show=show,
        refuse=lambda error: _refuse(group_id, error),
    )


def _answer(node: NodeState, group: ShareGroup) -> ShareGroupDescription:
    return ShareGroupDescription(
        error_code=KafkaCode.NONE,
        error_message=None,
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=ASSIGNOR,
        members=[_member(node, member_id, member) for member_id, member in group.members.items()],
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
