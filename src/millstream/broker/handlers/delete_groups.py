"""DeleteGroups (42), versions 0-2: groups without members, and their offsets."""

from collections.abc import Coroutine
from typing import Any

from millstream.broker.coordination.coordinators import GroupCoordinators, gather
from millstream.broker.requests.request import Request
from millstream.coordinators.groups import admin
from millstream.errors import KafkaCode
from millstream.wire.apis.delete_groups import (
    DeletedGroup,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


def handle(
    groups: GroupCoordinators, request: Request, body: DeleteGroupsRequest
) -> DeleteGroupsResponse | Coroutine[Any, Any, DeleteGroupsResponse]:
    answers = [_delete(groups, group_id) for group_id in dict.fromkeys(body.groups_names)]
    return gather(answers, lambda results: DeleteGroupsResponse(results=results))


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
