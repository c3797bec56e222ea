"""Heartbeat (12), versions 0-4: keeps a classic member alive; reports a rebalance."""

from collections.abc import Coroutine
from typing import Any

from millstream.broker.coordination.coordinators import GroupCoordinators
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.coordinators.groups import requests
from millstream.security.acl import ResourceType
from millstream.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(
    groups: GroupCoordinators, permissions: Permissions, request: Request, body: HeartbeatRequest
) -> HeartbeatResponse | Coroutine[Any, Any, HeartbeatResponse]:
    denied = permissions.denial(request, ResourceType.GROUP, body.group_id)
    if denied is not None:
        return HeartbeatResponse(error_code=denied.code)
    return groups.ask(
        body.group_id,
        lambda state, env: requests.heartbeat(
            state,
            body.group_id,
            member_id=body.member_id,
            instance_id=body.group_instance_id,
            generation=body.generation_id,
            env=env,
        ),
        show=lambda code: HeartbeatResponse(error_code=code),
        refuse=lambda error: HeartbeatResponse(error_code=error.code),
    )
