"""ConsumerGroupDescribe (69): groups of the consumer protocol and their members."""

from __future__ import annotations

from uuid import UUID

from millstream.wire.message import NO_OPERATIONS, Int8, Int16, Int32, Message, Request, since


class ConsumerGroupDescribeRequest(
    Request["ConsumerGroupDescribeResponse"], key=69, versions=(0, 1), flexible_from=0
):
    group_ids: list[str]
    include_authorized_operations: bool


class ConsumerGroupDescribeResponse(Message):
    throttle_time_ms: Int32 = 0
    groups: list[ConsumerGroupDescription]


class ConsumerGroupDescription(Message):
    error_code: Int16
    error_message: str | None = None
    group_id: str
    group_state: str
    group_epoch: Int32
    assignment_epoch: Int32
    assignor_name: str
    members: list[ConsumerGroupMember]
    authorized_operations: Int32 = NO_OPERATIONS


class ConsumerGroupMember(Message):
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    member_epoch: Int32
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    subscribed_topic_regex: str | None = None
    assignment: ConsumerGroupAssignment
    target_assignment: ConsumerGroupAssignment
    member_type: Int8 = since(1, default=-1)


class ConsumerGroupAssignment(Message):
    topic_partitions: list[ConsumerGroupTopicPartitions]


class ConsumerGroupTopicPartitions(Message):
    topic_id: UUID
    topic_name: str
    partitions: list[Int32]
