"""DeleteGroups (42), versions 0-2: groups without members, and their offsets."""

from collections.abc import Coroutine
from typing import Any

from millstream.broker.coordination.coordinators import GroupCoordinators
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import Turns
from millstream.coordinators.groups import admin
from millstream.errors import KafkaCode
from millstream.wire.apis.delete_groups import (
    DeletedGroup,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


def handle(
    groups: GroupCoordinators, turns: Turns, request: Request, body: DeleteGroupsRequest
) -> DeleteGroupsResponse | Coroutine[Any, Any, DeleteGroupsResponse]:
    return turns.answer_each(
        request,
        dict.fromkeys(body.groups_names),
        lambda group_id: _delete(groups, group_id),
        lambda results: DeleteGroupsResponse(results=results),
    )


def _delete(
    groups: GroupCoordinators, group_id: str
) -> DeletedGroup | Coroutine[Any, Any, DeletedGroup]:
    def answer(code: KafkaCode) -> DeletedGroup:
        return DeletedGroup(group_id=group_id, error_code=code)

    return groups.ask(
        group_id,
        lambda state, env: admin.delete_group(state, group_id),
        show=answer,
        refuse=lambda error: answer(error.code),
    )
