"""CommitGroup (20000, ours): one commit for the transactions of many producers."""

from __future__ import annotations

from millstream.wire.message import Int16, Int64, Message, Request


class CommitGroupRequest(
    Request["CommitGroupResponse"], key=20_000, versions=(0, 0), flexible_from=0
):
    """Commit the transactions of these members, abort those of the others, as batch `batch`.

    `run` identifies the caller, or is empty: the first request of a new run fences older ones.
    """

    group: str
    run: str
    batch: Int64
    members: list[CommitGroupMember]


class CommitGroupMember(Message):
    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16


class CommitGroupResponse(Message):
    """`already_committed`: the batch, or a later one, was committed before; nothing was done."""

    error_code: Int16
    error_message: str | None
    already_committed: bool
    last_batch: Int64
