"""ListGroups (16), versions 0-5: by state from version 4, by type from 5."""

from millstream.broker.coordination.coordinators import GroupCoordinators
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import Turns
from millstream.coordinators.groups import admin
from millstream.errors import KafkaCode, KafkaError
from millstream.security.acl import ResourceType
from millstream.wire.apis.list_groups import ListGroupsGroup, ListGroupsRequest, ListGroupsResponse

NAMES_FEW = True


async def handle(
    groups: GroupCoordinators,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    body: ListGroupsRequest,
) -> ListGroupsResponse:
    sees_all = permissions.allows_cluster(request)
    try:
        listed = [
            ListGroupsGroup(
                group_id=row.group_id,
                protocol_type=row.protocol_type,
                group_state=row.state,
                group_type=row.type,
            )
            async for shard in turns.each_in_line(request, await groups.active_shards())
            for row in admin.list_groups(
                shard.listed_state(), states=body.states_filter, types=body.types_filter
            )
            if sees_all or permissions.allows(request, ResourceType.GROUP, row.group_id)
        ]
    except KafkaError as error:
        return ListGroupsResponse(error_code=error.code, groups=[])
    return ListGroupsResponse(error_code=KafkaCode.NONE, groups=listed)
