"""EndTxn (26): commit or abort. From 5 on, the response has a new epoch."""

from __future__ import annotations

from millstream.wire.message import Int16, Int32, Int64, Message, Request, since


class EndTxnRequest(Request["EndTxnResponse"], key=26, versions=(0, 5), flexible_from=3):
    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    committed: bool


class EndTxnResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16
    producer_id: Int64 = since(5, default=-1)
    producer_epoch: Int16 = since(5, default=-1)
