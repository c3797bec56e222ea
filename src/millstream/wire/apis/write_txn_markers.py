"""WriteTxnMarkers (27): a coordinator ends transactions in partitions."""

from __future__ import annotations

from millstream.wire.message import Int8, Int16, Int32, Int64, Message, Request, since


class WriteTxnMarkersRequest(
    Request["WriteTxnMarkersResponse"], key=27, versions=(1, 2), flexible_from=1
):
    markers: list[WritableTxnMarker]


class WritableTxnMarker(Message):
    producer_id: Int64
    producer_epoch: Int16
    transaction_result: bool
    topics: list[WritableTxnMarkerTopic]
    coordinator_epoch: Int32
    transaction_version: Int8 = since(2, default=0)


class WritableTxnMarkerTopic(Message):
    name: str
    partition_indexes: list[Int32]


class WriteTxnMarkersResponse(Message):
    markers: list[WrittenTxnMarker]


class WrittenTxnMarker(Message):
    producer_id: Int64
    topics: list[WrittenTxnMarkerTopic]


class WrittenTxnMarkerTopic(Message):
    name: str
    partitions: list[WrittenTxnMarkerPartition]


class WrittenTxnMarkerPartition(Message):
    partition_index: Int32
    error_code: Int16
