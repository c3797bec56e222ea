"""ElectLeaders (43): another leader for partitions, or the preferred one."""

from __future__ import annotations

from millstream.wire.message import Int8, Int16, Int32, Message, Request, since


class ElectLeadersRequest(
    Request["ElectLeadersResponse"], key=43, versions=(0, 2), flexible_from=2
):
    election_type: Int8 = since(1, default=0)
    topic_partitions: list[ElectLeadersTopic] | None
    timeout_ms: Int32 = 60_000


class ElectLeadersTopic(Message):
    topic: str
    partitions: list[Int32]


class ElectLeadersResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = since(1, default=0)
    replica_election_results: list[ElectLeadersTopicResult]


class ElectLeadersTopicResult(Message):
    topic: str
    partition_result: list[ElectLeadersPartitionResult]


class ElectLeadersPartitionResult(Message):
    partition_id: Int32
    error_code: Int16
    error_message: str | None
