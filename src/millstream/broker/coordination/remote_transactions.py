"""What a transaction needs from other nodes: markers in their partitions, and verification
by its coordinator.

Both may be sent twice: a marker that exists is not written again, and a partition that was
added is not added again.
One attempt each; `transactions` retries.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from millstream.broker.node.cluster import Peers
from millstream.client.aio import NoAnswer
from millstream.coordinators.codecs.transactions import Partitions
from millstream.coordinators.decision import ProducerEpoch
from millstream.errors import KafkaCode, KafkaError
from millstream.records.control import ControlType, EndTransactionMarker
from millstream.wire.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from millstream.wire.apis.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

_MARKERS_VERSION: Final = 1
# Version 5 knows TRANSACTION_ABORTABLE.
_ADD_VERSION: Final = 5
_SECONDS_MAX: Final = 30.0
# A newer producer has written since: nothing of this one is open.
_DONE: Final = frozenset({KafkaCode.NONE, KafkaCode.INVALID_PRODUCER_EPOCH})

Codes = dict[tuple[str, int], KafkaCode]


async def write_markers(
    peers: Peers,
    leader: int,
    partitions: Mapping[str, list[int]],
    marker: EndTransactionMarker,
    producer: ProducerEpoch,
) -> None:
    """End a transaction in partitions that another node leads. Raises KafkaError."""
    request = WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                transaction_result=marker.type is ControlType.COMMIT,
                topics=[
                    WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
                    for name, indexes in partitions.items()
                ],
                coordinator_epoch=marker.coordinator_epoch,
            )
        ]
    )
    try:
        answer = await peers.ask(leader, request, _MARKERS_VERSION, timeout_seconds=_SECONDS_MAX)
    except NoAnswer as error:
        raise KafkaError(KafkaCode.NETWORK_EXCEPTION, str(error)) from error
    codes = _marker_codes(answer)
    for name, indexes in partitions.items():
        for index in indexes:
            # A partition that the response leaves out has no marker.
            code = codes.get((name, index), KafkaCode.UNKNOWN_SERVER_ERROR)
            if code not in _DONE:
                raise KafkaError(code, f"{name}-{index}")


def _marker_codes(answer: WriteTxnMarkersResponse) -> Codes:
    return {
        (topic.name, partition.partition_index): KafkaCode(partition.error_code)
        for one in answer.markers
        for topic in one.topics
        for partition in topic.partitions
    }


def ask_coordinator(
    peers: Peers,
    coordinator: int,
    transactional_id: str,
    producer: ProducerEpoch,
    partitions: Partitions,
    *,
    is_verified_only: bool,
) -> "asyncio.Future[Codes]":
    """Verify partitions of a transaction at its coordinator, or add them there."""
    return asyncio.ensure_future(
        _ask_coordinator(
            peers,
            coordinator,
            transactional_id,
            producer,
            partitions,
            is_verified_only=is_verified_only,
        )
    )


async def _ask_coordinator(
    peers: Peers,
    coordinator: int,
    transactional_id: str,
    producer: ProducerEpoch,
    partitions: Partitions,
    *,
    is_verified_only: bool,
) -> Codes:
    request = AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                verify_only=is_verified_only,
                topics=[
                    AddPartitionsToTxnTopic(name=name, partitions=sorted(indexes))
                    for name, indexes in partitions.items()
                ],
            )
        ]
    )
    try:
        answer = await peers.ask(coordinator, request, _ADD_VERSION, timeout_seconds=_SECONDS_MAX)
    except NoAnswer as error:
        raise KafkaError(KafkaCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
    if answer.error_code != KafkaCode.NONE:
        raise KafkaError(KafkaCode(answer.error_code))
    codes = {
        (topic.name, partition.partition_index): KafkaCode(partition.partition_error_code)
        for one in answer.results_by_transaction
        if one.transactional_id == transactional_id
        for topic in one.topic_results
        for partition in topic.results_by_partition
    }
    wanted = [(name, index) for name, indexes in partitions.items() for index in indexes]
    return {where: codes.get(where, KafkaCode.COORDINATOR_NOT_AVAILABLE) for where in wanted}
