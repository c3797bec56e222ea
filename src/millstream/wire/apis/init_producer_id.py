"""InitProducerId (22): an id for a producer, and the transactional id it takes over."""

from __future__ import annotations

from millstream.wire.message import Int16, Int32, Int64, Message, Request, since


# 6 is read and not listed: its fields are for two-phase commit (KIP-939), which is refused.
class InitProducerIdRequest(
    Request["InitProducerIdResponse"], key=22, versions=(0, 6), flexible_from=2, listed=(0, 5)
):
    transactional_id: str | None
    transaction_timeout_ms: Int32
    producer_id: Int64 = since(3, default=-1)
    producer_epoch: Int16 = since(3, default=-1)
    enable2_pc: bool = since(6, default=False)
    keep_prepared_txn: bool = since(6, default=False)


class InitProducerIdResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16
    producer_id: Int64 = -1
    producer_epoch: Int16
    ongoing_txn_producer_id: Int64 = since(6, default=-1)
    ongoing_txn_producer_epoch: Int16 = since(6, default=-1)
