"""StreamsGroupDescribe (89): streams groups, their topologies, members and tasks."""

from __future__ import annotations

from millstream.wire.message import NO_OPERATIONS, Int16, Int32, Int64, Message, Request, UInt16


class StreamsGroupDescribeRequest(
    Request["StreamsGroupDescribeResponse"], key=89, versions=(0, 0), flexible_from=0
):
    group_ids: list[str]
    include_authorized_operations: bool


class StreamsGroupDescribeResponse(Message):
    throttle_time_ms: Int32 = 0
    groups: list[StreamsGroupDescription]


class StreamsGroupDescription(Message):
    error_code: Int16
    error_message: str | None = None
    group_id: str
    group_state: str
    group_epoch: Int32
    assignment_epoch: Int32
    topology: DescribedTopology | None = None
    members: list[DescribedStreamsMember]
    authorized_operations: Int32 = NO_OPERATIONS


class DescribedTopology(Message):
    epoch: Int32
    subtopologies: list[DescribedSubtopology] | None = None


class DescribedSubtopology(Message):
    subtopology_id: str
    source_topics: list[str]
    repartition_sink_topics: list[str]
    state_changelog_topics: list[DescribedTopicInfo]
    repartition_source_topics: list[DescribedTopicInfo]


class DescribedTopicInfo(Message):
    name: str
    partitions: Int32
    replication_factor: Int16
    topic_configs: list[DescribedKeyValue]


class DescribedKeyValue(Message):
    key: str
    value: str


class DescribedStreamsMember(Message):
    member_id: str
    member_epoch: Int32
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str
    client_host: str
    topology_epoch: Int32
    process_id: str
    user_endpoint: DescribedEndpoint | None = None
    client_tags: list[DescribedKeyValue]
    task_offsets: list[DescribedTaskOffset]
    task_end_offsets: list[DescribedTaskOffset]
    assignment: DescribedTasks
    target_assignment: DescribedTasks
    is_classic: bool = False


class DescribedEndpoint(Message):
    host: str
    port: UInt16


class DescribedTaskOffset(Message):
    subtopology_id: str
    partition: Int32
    offset: Int64


class DescribedTasks(Message):
    active_tasks: list[DescribedTaskIds]
    standby_tasks: list[DescribedTaskIds]
    warmup_tasks: list[DescribedTaskIds]


class DescribedTaskIds(Message):
    subtopology_id: str
    partitions: list[Int32]
