"""ShareGroupDescribe (77): share groups with their members and assignments."""

from __future__ import annotations

from uuid import UUID

from millstream.wire.message import NO_OPERATIONS, Int16, Int32, Message, Request


class ShareGroupDescribeRequest(
    Request["ShareGroupDescribeResponse"], key=77, versions=(1, 1), flexible_from=0
):
    group_ids: list[str]
    include_authorized_operations: bool


class ShareGroupDescribeResponse(Message):
    throttle_time_ms: Int32 = 0
    groups: list[ShareGroupDescription]


class ShareGroupDescription(Message):
    error_code: Int16
    error_message: str | None = None
    group_id: str
    group_state: str
    group_epoch: Int32
    assignment_epoch: Int32
    assignor_name: str
    members: list[ShareGroupMember]
    authorized_operations: Int32 = NO_OPERATIONS


class ShareGroupMember(Message):
    member_id: str
    rack_id: str | None = None
    member_epoch: Int32
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    assignment: ShareMemberAssignment


class ShareMemberAssignment(Message):
    topic_partitions: list[ShareMemberTopicPartitions]


class ShareMemberTopicPartitions(Message):
    topic_id: UUID
    topic_name: str
    partitions: list[Int32]
