"""DeleteGroups (42), versions 0-2: groups without members, and their offsets."""

from collections.abc import Coroutine
from typing import Any

from millstream.broker.coordination.coordinators import GroupCoordinators
from millstream.broker.coordination.hosting import Coordinators
from millstream.broker.coordination.share_state import for_each
from millstream.broker.coordination.sharing import Sharing
from millstream.broker.coordination.transactions import wait_for
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import Turns
from millstream.coordinators.groups import admin, requests
from millstream.coordinators.share import admin as share_admin
from millstream.errors import KafkaCode, KafkaError
from millstream.security.acl import ResourceType
from millstream.wire.apis.delete_groups import (
    DeletedGroup,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


def handle(
    groups: GroupCoordinators,
    coordination: Coordinators,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    body: DeleteGroupsRequest,
) -> DeleteGroupsResponse | Coroutine[Any, Any, DeleteGroupsResponse]:
    return turns.prepare(
        request,
        lambda each: dict.fromkeys(each(body.groups_names)),
        lambda wanted: turns.answer_each(
            request,
            wanted,
            lambda group_id: _delete(groups, coordination, permissions, request, group_id),
            lambda results: DeleteGroupsResponse(results=results),
        ),
    )


def _delete(
    groups: GroupCoordinators,
    coordination: Coordinators,
    permissions: Permissions,
    request: Request,
    group_id: str,
) -> DeletedGroup | Coroutine[Any, Any, DeletedGroup]:
    def answer(code: KafkaCode) -> DeletedGroup:
        return DeletedGroup(group_id=group_id, error_code=code)

    denied = permissions.denial(request, ResourceType.GROUP, group_id)
    if denied is not None:
        return answer(denied.code)
    try:
        # Members whose session has expired leave first, also where their timer comes after this.
        groups.shards.end_what_is_over(group_id)
        is_shared = admin.is_share_group(groups.shard_for(group_id).state, group_id)
    except KafkaError as error:
        return answer(error.code)
    if is_shared:
        return _delete_shared(coordination.sharing, group_id)
    return groups.ask(
        group_id,
        lambda state, env: admin.delete_group(state, group_id),
        show=answer,
        refuse=lambda error: answer(error.code),
    )


async def _delete_shared(sharing: Sharing, group_id: str) -> DeletedGroup:
    """First its share partitions, which another node may keep."""
    code = KafkaCode.NONE
    try:
        work = await wait_for(
            sharing.groups.submit(
                group_id,
                lambda state, env: share_admin.begin_delete(
                    requests.share_group(state, group_id), env
                ),
            )
        )
        failed = await for_each(
            group_id,
            [(topic_id, n) for topic_id, one in work.topics.items() for n in one.partitions],
            sharing.state.delete,
        )
        sharing.partitions.forget_group(group_id)
        if failed:
            raise next(iter(failed.values()))
        await wait_for(
            sharing.groups.submit(group_id, lambda state, env: admin.delete_group(state, group_id))
        )
    except KafkaError as error:
        code = error.code
    return DeletedGroup(group_id=group_id, error_code=code)
