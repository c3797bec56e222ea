"""LeaveGroup (13), versions 0-5: one member leaves; from version 3, several at once."""

from collections.abc import Coroutine, Sequence
from typing import Any, Final

from millstream.broker.coordination.coordinators import GroupCoordinators
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.coordinators.classic.protocol import Leaving
from millstream.coordinators.groups import requests
from millstream.errors import KafkaCode
from millstream.security.acl import ResourceType
from millstream.wire.apis.leave_group import (
    LeaveGroupMemberResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
)

BATCHED_FROM: Final = 3
# Of one request. An administrator who removes more of them sends several.
_MEMBERS_MAX: Final = 5_000


def handle(
    groups: GroupCoordinators, permissions: Permissions, request: Request, body: LeaveGroupRequest
) -> LeaveGroupResponse | Coroutine[Any, Any, LeaveGroupResponse]:
    denied = permissions.denial(request, ResourceType.GROUP, body.group_id)
    if denied is not None:
        return LeaveGroupResponse(error_code=denied.code, members=[])
    if len(body.members) > _MEMBERS_MAX:
        return LeaveGroupResponse(error_code=KafkaCode.INVALID_REQUEST, members=[])
    if request.version >= BATCHED_FROM:
        leaving = [Leaving(m.member_id, m.group_instance_id) for m in body.members]
    else:
        leaving = [Leaving(body.member_id, None)]

    def show(codes: Sequence[KafkaCode]) -> LeaveGroupResponse:
        if request.version < BATCHED_FROM:
            return LeaveGroupResponse(error_code=codes[0], members=[])
        return LeaveGroupResponse(
            error_code=KafkaCode.NONE,
            members=[
                LeaveGroupMemberResponse(
                    member_id=who.member_id, group_instance_id=who.instance_id, error_code=code
                )
                for who, code in zip(leaving, codes, strict=True)
            ],
        )

    return groups.ask(
        body.group_id,
        lambda state, env: requests.leave(state, body.group_id, leaving, env),
        show=show,
        refuse=lambda error: LeaveGroupResponse(error_code=error.code, members=[]),
    )
