"""DeleteGroups (42): groups without members, and their offsets."""

from __future__ import annotations

from millstream.wire.message import Int16, Int32, Message, Request


class DeleteGroupsRequest(
    Request["DeleteGroupsResponse"], key=42, versions=(0, 2), flexible_from=2
):
    groups_names: list[str]


class DeleteGroupsResponse(Message):
    throttle_time_ms: Int32 = 0
    results: list[DeletedGroup]


class DeletedGroup(Message):
    group_id: str
    error_code: Int16
