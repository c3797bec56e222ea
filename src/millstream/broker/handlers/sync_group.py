"""SyncGroup (14), versions 0-5: the leader sends the assignment, each member gets its part."""

from collections.abc import Coroutine
from typing import Any

from millstream.broker.coordination.coordinators import GroupCoordinators
from millstream.broker.coordination.member_quota import Caller
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import Turns
from millstream.coordinators.classic.protocol import SyncRequest
from millstream.coordinators.classic.rebalance import SyncReply
from millstream.coordinators.groups import requests
from millstream.errors import KafkaError
from millstream.security.acl import ResourceType
from millstream.wire.apis.sync_group import SyncGroupRequest, SyncGroupResponse


def handle(
    groups: GroupCoordinators,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    body: SyncGroupRequest,
) -> SyncGroupResponse | Coroutine[Any, Any, SyncGroupResponse]:
    denied = permissions.denial(request, ResourceType.GROUP, body.group_id)
    if denied is not None:
        return _answer(SyncReply(denied.code))
    return turns.prepare(
        request,
        lambda each: {one.member_id: bytes(one.assignment) for one in each(body.assignments)},
        lambda assignments: _sync(groups, request, body, assignments),
    )


def _sync(
    groups: GroupCoordinators,
    request: Request,
    body: SyncGroupRequest,
    assignments: dict[str, bytes],
) -> SyncGroupResponse | Coroutine[Any, Any, SyncGroupResponse]:
    try:
        if assignments:
            caller = Caller(request.connection.client, request.client_host)
            groups.admit_assignments(body.group_id, caller, sum(map(len, assignments.values())))
    except KafkaError as error:
        return _answer(SyncReply(error.code))
    sync = SyncRequest(
        member_id=body.member_id,
        instance_id=body.group_instance_id,
        generation=body.generation_id,
        protocol_type=body.protocol_type,
        protocol_name=body.protocol_name,
        assignments=assignments,
        may_wait=not request.is_long,
    )
    return groups.ask(
        body.group_id,
        lambda state, env: requests.sync(state, body.group_id, sync, env),
        show=_answer,
        refuse=lambda error: _answer(SyncReply(error.code)),
    )


def _answer(reply: SyncReply) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=reply.code,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol_name,
        assignment=reply.assignment,
    )
