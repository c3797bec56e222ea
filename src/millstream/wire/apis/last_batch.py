"""LastBatch (20001, ours): the last batch that was committed for a group of producers."""

from __future__ import annotations

from millstream.wire.message import Int16, Int64, Message, Request


class LastBatchRequest(Request["LastBatchResponse"], key=20_001, versions=(0, 0), flexible_from=0):
    """`run` as in CommitGroup; a new one takes over the group."""

    group: str
    run: str


class LastBatchResponse(Message):
    """`last_batch` is -1 for a group that has committed none."""

    error_code: Int16
    error_message: str | None
    last_batch: Int64
