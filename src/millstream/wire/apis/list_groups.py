"""ListGroups (16): the groups that a node coordinates."""

from __future__ import annotations

from millstream.wire.message import Int16, Int32, Message, Request, since


class ListGroupsRequest(Request["ListGroupsResponse"], key=16, versions=(0, 5), flexible_from=3):
    states_filter: list[str] = since(4, default=[])
    types_filter: list[str] = since(5, default=[])


class ListGroupsResponse(Message):
    throttle_time_ms: Int32 = since(1, default=0)
    error_code: Int16
    groups: list[ListGroupsGroup]


class ListGroupsGroup(Message):
    group_id: str
    protocol_type: str
    group_state: str = since(4)
    group_type: str = since(5)
