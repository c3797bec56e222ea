"""ListTransactions (66): transactional ids by state, producer, duration and pattern."""

from __future__ import annotations

from millstream.wire.message import Int16, Int32, Int64, Message, Request, since


class ListTransactionsRequest(
    Request["ListTransactionsResponse"], key=66, versions=(0, 2), flexible_from=0
):
    state_filters: list[str]
    producer_id_filters: list[Int64]
    duration_filter: Int64 = since(1, default=-1)
    transactional_id_pattern: str | None = since(2, default=None)


class ListTransactionsResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16
    unknown_state_filters: list[str]
    transaction_states: list[ListedTransaction]


class ListedTransaction(Message):
    transactional_id: str
    producer_id: Int64
    transaction_state: str
