"""DescribeLogDirs (35): the size of each partition on disk."""

from __future__ import annotations

from millstream.wire.message import Int16, Int32, Int64, Message, Request, since


class DescribeLogDirsRequest(
    Request["DescribeLogDirsResponse"], key=35, versions=(1, 5), flexible_from=2
):
    topics: list[DescribableLogDirTopic] | None


class DescribableLogDirTopic(Message):
    topic: str
    partitions: list[Int32]


class DescribeLogDirsResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = since(3, default=0)
    results: list[DescribeLogDirsResult]


class DescribeLogDirsResult(Message):
    error_code: Int16
    log_dir: str
    topics: list[DescribeLogDirsTopic]
    total_bytes: Int64 = since(4, default=-1)
    usable_bytes: Int64 = since(4, default=-1)
    is_cordoned: bool = since(5, default=False)


class DescribeLogDirsTopic(Message):
    name: str
    partitions: list[DescribeLogDirsPartition]


class DescribeLogDirsPartition(Message):
    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64
    is_future_key: bool
