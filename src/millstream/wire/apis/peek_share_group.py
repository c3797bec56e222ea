"""PeekShareGroup (20005, ours): what a share group has in flight on one node."""

from __future__ import annotations

from millstream.wire.message import Int8, Int16, Int32, Int64, Message, Request


class PeekShareGroupRequest(
    Request["PeekShareGroupResponse"], key=20_005, versions=(0, 0), flexible_from=0
):
    """Of these partitions, those that the node leads are in the answer."""

    group_id: str
    topics: list[PeekedTopic]


class PeekedTopic(Message):
    topic: str
    partitions: list[PeekedPartitionStart]


class PeekedPartitionStart(Message):
    """`start_offset` is where the group is, for a partition that nobody fetches from now."""

    partition: Int32
    start_offset: Int64


class PeekShareGroupResponse(Message):
    """`dead_letters` are those that the node has written since its start; `dead_letter_problem`
    says why it archives records without one."""

    error_code: Int16
    error_message: str | None
    dead_letters: Int64
    dead_letter_problem: str | None
    partitions: list[PeekedPartition]


class PeekedPartition(Message):
    """Records before `start_offset` are finished, those from `next_offset` on were never
    delivered. `oldest_ms` is the time of the first that is not finished, -1 without one."""

    topic: str
    partition: Int32
    is_fetched: bool
    start_offset: Int64
    next_offset: Int64
    end_offset: Int64
    oldest_ms: Int64
    finished: Int64
    ranges: list[PeekedRange]


class PeekedRange(Message):
    """`state` is 0 available, 1 acquired, 3 archiving, 16 delayed. `left_ms` is what is left of a
    lock or a delay."""

    first_offset: Int64
    last_offset: Int64
    state: Int8
    delivery_count: Int32
    member_id: str | None
    left_ms: Int64
