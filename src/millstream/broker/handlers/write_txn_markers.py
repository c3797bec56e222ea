"""WriteTxnMarkers (27), versions 1-2: end a transaction in partitions.

Coordinators send it to the leaders of partitions, and tools send it to end a hanging one. Decision
0022 says who may do what.
"""

import asyncio

from millstream.broker.coordination.transactions import TransactionCoordinator
from millstream.broker.node.state import NodeState
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import Turns
from millstream.coordinators.decision import ProducerEpoch
from millstream.errors import KafkaCode, KafkaError
from millstream.records.control import ControlType, EndTransactionMarker
from millstream.security.acl import CLUSTER_NAME, ResourceType
from millstream.security.operations import BY_NODE
from millstream.wire.apis.write_txn_markers import (
    WritableTxnMarker,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
    WrittenTxnMarker,
    WrittenTxnMarkerPartition,
    WrittenTxnMarkerTopic,
)


async def handle(
    node: NodeState,
    transactions: TransactionCoordinator,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    body: WriteTxnMarkersRequest,
) -> WriteTxnMarkersResponse:
    waits: list[tuple[WrittenTxnMarkerPartition, asyncio.Future[None]]] = []
    denied = None
    if not permissions.allows_cluster(request, BY_NODE):
        denied = permissions.denial(request, ResourceType.CLUSTER, CLUSTER_NAME)
    markers = [
        WrittenTxnMarker(
            producer_id=one.producer_id,
            topics=[
                WrittenTxnMarkerTopic(
                    name=topic.name,
                    partitions=[
                        _write(node, transactions, request, one, topic.name, index, waits)
                        if denied is None
                        else WrittenTxnMarkerPartition(
                            partition_index=index, error_code=denied.code
                        )
                        async for index in turns.each(request, topic.partition_indexes)
                    ],
                )
                async for topic in turns.each(request, one.topics)
            ],
        )
        async for one in turns.each(request, body.markers)
    ]
    async for result, wait in turns.each(request, waits):
        try:
            await wait
        except KafkaError as error:
            result.error_code = error.code
    return WriteTxnMarkersResponse(markers=markers)


def _write(
    node: NodeState,
    transactions: TransactionCoordinator,
    request: Request,
    one: WritableTxnMarker,
    topic: str,
    index: int,
    waits: "list[tuple[WrittenTxnMarkerPartition, asyncio.Future[None]]]",
) -> WrittenTxnMarkerPartition:
    result = WrittenTxnMarkerPartition(partition_index=index, error_code=KafkaCode.NONE)
    kind = ControlType.COMMIT if one.transaction_result else ControlType.ABORT
    try:
        if kind is ControlType.COMMIT and request.connection.proved_node_id < 0:
            # Only a coordinator decides that. Administrators may abort what hangs.
            raise KafkaError(KafkaCode.CLUSTER_AUTHORIZATION_FAILED)
        node.partitions.get(topic, index)
        wait = transactions.write_marker(
            topic,
            index,
            EndTransactionMarker(kind, one.coordinator_epoch),
            ProducerEpoch(one.producer_id, one.producer_epoch),
        )
    except KafkaError as error:
        result.error_code = error.code
        return result
    if wait is not None:
        waits.append((result, wait))
    return result
