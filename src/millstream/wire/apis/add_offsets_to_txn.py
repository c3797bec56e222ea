"""AddOffsetsToTxn (25): add a group's offsets to a transaction."""

from __future__ import annotations

from millstream.wire.message import Int16, Int32, Int64, Message, Request


class AddOffsetsToTxnRequest(
    Request["AddOffsetsToTxnResponse"], key=25, versions=(0, 4), flexible_from=3
):
    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    group_id: str


class AddOffsetsToTxnResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16
