"""DescribeGroups (15), versions 0-6: classic groups, with the members' opaque bytes."""

from collections.abc import Coroutine
from typing import Any, Final

from millstream.broker.coordination.coordinators import GroupCoordinators
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import TOO_LARGE, Turns, Weight
from millstream.coordinators.groups import admin
from millstream.coordinators.groups.admin import DescribedGroup
from millstream.errors import KafkaCode, KafkaError
from millstream.security.acl import ResourceType
from millstream.wire.apis.describe_groups import (
    DescribeGroupsGroup,
    DescribeGroupsMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from millstream.wire.message import NO_OPERATIONS

# Earlier versions report a group that does not exist as Dead.
KNOWS_NOT_FOUND_FROM: Final = 6


def handle(
    groups: GroupCoordinators,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    body: DescribeGroupsRequest,
) -> DescribeGroupsResponse | Coroutine[Any, Any, DescribeGroupsResponse]:
    def answer(
        group_id: str,
    ) -> DescribeGroupsGroup | Coroutine[Any, Any, DescribeGroupsGroup]:
        denied = permissions.denial(request, ResourceType.GROUP, group_id)
        if denied is not None:
            return _answer(DescribedGroup(group_id, ""), denied.code, None)
        operations = NO_OPERATIONS
        if body.include_authorized_operations:
            operations = permissions.operations(request, ResourceType.GROUP, group_id)
        return _describe(groups, request, group_id, operations)

    return turns.prepare(
        request,
        lambda each: dict.fromkeys(each(body.groups)),
        lambda wanted: turns.answer_each(
            request,
            wanted,
            answer,
            lambda groups: DescribeGroupsResponse(groups=groups),
            Weight(_weight, _too_large),
        ),
    )


def _weight(group: DescribeGroupsGroup) -> int:
    return 100 + sum(
        200 + len(member.member_metadata) + len(member.member_assignment)
        for member in group.members
    )


def _too_large(group_id: str) -> DescribeGroupsGroup:
    return _answer(DescribedGroup(group_id, ""), KafkaCode.INVALID_REQUEST, TOO_LARGE)


def _describe(
    groups: GroupCoordinators, request: Request, group_id: str, operations: int
) -> DescribeGroupsGroup | Coroutine[Any, Any, DescribeGroupsGroup]:
    def refuse(error: KafkaError) -> DescribeGroupsGroup:
        code = error.code
        if code is KafkaCode.GROUP_ID_NOT_FOUND and request.version < KNOWS_NOT_FOUND_FROM:
            return _answer(DescribedGroup(group_id), KafkaCode.NONE, None)
        state = "Dead" if code is KafkaCode.GROUP_ID_NOT_FOUND else ""
        return _answer(DescribedGroup(group_id, state), code, error.message)

    return groups.ask(
        group_id,
        lambda state, env: admin.describe(state, group_id),
        show=lambda group: _answer(group, KafkaCode.NONE, None, operations),
        refuse=refuse,
    )


def _answer(
    group: DescribedGroup, code: KafkaCode, message: str | None, operations: int = NO_OPERATIONS
) -> DescribeGroupsGroup:
    return DescribeGroupsGroup(
        error_code=code,
        error_message=message,
        group_id=group.group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol_name,
        authorized_operations=operations,
        members=[
            DescribeGroupsMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in group.members
        ],
    )
