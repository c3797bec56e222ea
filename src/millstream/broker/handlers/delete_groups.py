"""DeleteGroups (42), versions 0-2: groups without members, and their offsets."""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from millstream.broker.coordination.coordinators import gather
from millstream.broker.requests.request import Request
from millstream.coordinators.groups import admin
from millstream.errors import KafkaCode
from millstream.wire.apis.delete_groups import (
    DeletedGroup,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

if TYPE_CHECKING:
    from millstream.broker.broker import Broker


def handle(
    broker: "Broker", request: Request, body: DeleteGroupsRequest
) -> DeleteGroupsResponse | Coroutine[Any, Any, DeleteGroupsResponse]:
    answers = [_delete(broker, group_id) for group_id in dict.fromkeys(body.groups_names)]
    return gather(answers, lambda results: DeleteGroupsResponse(results=results))


def _delete(broker: "Broker", group_id: str) -> DeletedGroup | Coroutine[Any, Any, DeletedGroup]:
    def answer(code: KafkaCode) -> DeletedGroup:
        return DeletedGroup(group_id=group_id, error_code=code)

    return broker.coordinators.ask(
        group_id,
        lambda state, env: admin.delete_group(state, group_id),
        show=answer,
        refuse=lambda error: answer(error.code),
    )
