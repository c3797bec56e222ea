"""AddPartitionsToTxn (24): 0-3 for clients; 4-5 for nodes, in bulk or to verify."""

from __future__ import annotations

from millstream.wire.message import Int16, Int32, Int64, Message, Request, since


class AddPartitionsToTxnRequest(
    Request["AddPartitionsToTxnResponse"], key=24, versions=(0, 5), flexible_from=3
):
    transactions: list[AddPartitionsToTxnTransaction] = since(4, default=[])
    v3_and_below_transactional_id: str = since(0, until=3, default="")
    v3_and_below_producer_id: Int64 = since(0, until=3, default=0)
    v3_and_below_producer_epoch: Int16 = since(0, until=3, default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = since(0, until=3, default=[])


class AddPartitionsToTxnTransaction(Message):
    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    verify_only: bool = False
    topics: list[AddPartitionsToTxnTopic]


class AddPartitionsToTxnTopic(Message):
    name: str
    partitions: list[Int32]


class AddPartitionsToTxnResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = since(4, default=0)
    results_by_transaction: list[AddPartitionsToTxnResult] = since(4, default=[])
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = since(
        0, until=3, default=[]
    )


class AddPartitionsToTxnResult(Message):
    transactional_id: str
    topic_results: list[AddPartitionsToTxnTopicResult]


class AddPartitionsToTxnTopicResult(Message):
    name: str
    results_by_partition: list[AddPartitionsToTxnPartitionResult]


class AddPartitionsToTxnPartitionResult(Message):
    partition_index: Int32
    partition_error_code: Int16
