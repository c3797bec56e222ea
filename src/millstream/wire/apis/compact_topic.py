"""CompactTopic (20002, ours): compact a topic now, or report the progress."""

from __future__ import annotations

from millstream.wire.message import Float64, Int8, Int16, Int32, Int64, Message, Request


class CompactTopicRequest(
    Request["CompactTopicResponse"], key=20_002, versions=(0, 0), flexible_from=0
):
    """Compact a topic now; if `is_started` is false, only report the progress."""

    topic: str
    is_started: bool


class CompactTopicResponse(Message):
    error_code: Int16
    error_message: str | None
    partitions: list[CompactedPartition]


class CompactedPartition(Message):
    """`state` is 0 idle, 1 waiting, 2 running, 3 failed; then `problem` says why."""

    partition: Int32
    state: Int8
    problem: str | None
    dirty_ratio: Float64
    bytes_before: Int64
    bytes_after: Int64
    records_before: Int64
    records_after: Int64
    keys: Int64
    moved_bytes: Int64
    elapsed_ms: Int64
