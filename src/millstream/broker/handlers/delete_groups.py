"""DeleteGroups (42), versions 0-2: groups without members, and their offsets."""

from collections.abc import Coroutine
from typing import Any

from millstream.broker.coordination.coordinators import GroupCoordinators
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import Turns
from millstream.coordinators.groups import admin
from millstream.errors import KafkaCode
from millstream.security.acl import ResourceType
from millstream.wire.apis.delete_groups import (
    DeletedGroup,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


def handle(
    groups: GroupCoordinators,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    body: DeleteGroupsRequest,
) -> DeleteGroupsResponse | Coroutine[Any, Any, DeleteGroupsResponse]:
    return turns.answer_each(
        request,
        dict.fromkeys(body.groups_names),
        lambda group_id: _delete(groups, permissions, request, group_id),
        lambda results: DeleteGroupsResponse(results=results),
    )


def _delete(
    groups: GroupCoordinators, permissions: Permissions, request: Request, group_id: str
) -> DeletedGroup | Coroutine[Any, Any, DeletedGroup]:
    def answer(code: KafkaCode) -> DeletedGroup:
        return DeletedGroup(group_id=group_id, error_code=code)

    denied = permissions.denial(request, ResourceType.GROUP, group_id)
    if denied is not None:
        return answer(denied.code)
    return groups.ask(
        group_id,
        lambda state, env: admin.delete_group(state, group_id),
        show=answer,
        refuse=lambda error: answer(error.code),
    )
