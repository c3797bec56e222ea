"""StreamsGroupHeartbeat (88): the entire protocol of streams groups (KIP-1071)."""

from __future__ import annotations

from millstream.wire.message import Int8, Int16, Int32, Int64, Message, Request, UInt16


class StreamsGroupHeartbeatRequest(
    Request["StreamsGroupHeartbeatResponse"], key=88, versions=(0, 0), flexible_from=0
):
    group_id: str
    member_id: str
    member_epoch: Int32
    endpoint_information_epoch: Int32
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: Int32 = -1
    topology: StreamsTopology | None = None
    active_tasks: list[StreamsTaskIds] | None = None
    standby_tasks: list[StreamsTaskIds] | None = None
    warmup_tasks: list[StreamsTaskIds] | None = None
    process_id: str | None = None
    user_endpoint: StreamsEndpoint | None = None
    client_tags: list[StreamsKeyValue] | None = None
    task_offsets: list[StreamsTaskOffset] | None = None
    task_end_offsets: list[StreamsTaskOffset] | None = None
    shutdown_application: bool = False


class StreamsTopology(Message):
    epoch: Int32
    subtopologies: list[StreamsSubtopology]


class StreamsSubtopology(Message):
    subtopology_id: str
    source_topics: list[str]
    source_topic_regex: list[str]
    state_changelog_topics: list[StreamsTopicInfo]
    repartition_sink_topics: list[str]
    repartition_source_topics: list[StreamsTopicInfo]
    copartition_groups: list[StreamsCopartitionGroup]


class StreamsCopartitionGroup(Message):
    source_topics: list[Int16]
    source_topic_regex: list[Int16]
    repartition_source_topics: list[Int16]


class StreamsTopicInfo(Message):
    name: str
    partitions: Int32
    replication_factor: Int16
    topic_configs: list[StreamsKeyValue]


class StreamsKeyValue(Message):
    key: str
    value: str


class StreamsTaskIds(Message):
    subtopology_id: str
    partitions: list[Int32]


class StreamsTaskOffset(Message):
    subtopology_id: str
    partition: Int32
    offset: Int64


class StreamsEndpoint(Message):
    host: str
    port: UInt16


class StreamsGroupHeartbeatResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: str | None = None
    member_id: str = ""
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    acceptable_recovery_lag: Int32 = 0
    task_offset_interval_ms: Int32 = 0
    status: list[StreamsGroupStatus] | None = None
    active_tasks: list[StreamsTaskIds] | None = None
    standby_tasks: list[StreamsTaskIds] | None = None
    warmup_tasks: list[StreamsTaskIds] | None = None
    endpoint_information_epoch: Int32 = 0
    partitions_by_user_endpoint: list[StreamsEndpointPartitions] | None = None


class StreamsGroupStatus(Message):
    status_code: Int8
    status_detail: str


class StreamsEndpointPartitions(Message):
    user_endpoint: StreamsEndpoint
    active_partitions: list[StreamsTopicPartitions]
    standby_partitions: list[StreamsTopicPartitions]


class StreamsTopicPartitions(Message):
    topic: str
    partitions: list[Int32]
