"""DescribeTransactions (65): the state of transactional ids."""

from __future__ import annotations

from millstream.wire.message import Int16, Int32, Int64, Message, Request


class DescribeTransactionsRequest(
    Request["DescribeTransactionsResponse"], key=65, versions=(0, 0), flexible_from=0
):
    transactional_ids: list[str]


class DescribeTransactionsResponse(Message):
    throttle_time_ms: Int32 = 0
    transaction_states: list[DescribedTransaction]


class DescribedTransaction(Message):
    error_code: Int16
    transactional_id: str
    transaction_state: str
    transaction_timeout_ms: Int32
    transaction_start_time_ms: Int64
    producer_id: Int64
    producer_epoch: Int16
    topics: list[DescribedTransactionTopic]


class DescribedTransactionTopic(Message):
    topic: str
    partitions: list[Int32]
