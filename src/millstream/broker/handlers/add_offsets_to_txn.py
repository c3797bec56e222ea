"""AddOffsetsToTxn (25), versions 0-4: add a group's offsets to a transaction."""

from collections.abc import Coroutine
from typing import Any

from millstream.broker.coordination.coordinators import GroupCoordinators
from millstream.broker.coordination.shards import partition_for, shown
from millstream.broker.coordination.transactions import TransactionCoordinator
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.transaction_codes import add_offsets_code
from millstream.coordinators.decision import ProducerEpoch
from millstream.errors import KafkaCode, KafkaError
from millstream.model import OFFSETS_TOPIC
from millstream.security.acl import ResourceType
from millstream.wire.apis.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse


def handle(
    groups: GroupCoordinators,
    transactions: TransactionCoordinator,
    permissions: Permissions,
    request: Request,
    body: AddOffsetsToTxnRequest,
) -> AddOffsetsToTxnResponse | Coroutine[Any, Any, AddOffsetsToTxnResponse]:
    def refuse(error: KafkaError) -> AddOffsetsToTxnResponse:
        code = add_offsets_code(error.code, request.version)
        return AddOffsetsToTxnResponse(error_code=code)

    try:
        if not body.transactional_id:
            raise KafkaError(KafkaCode.INVALID_REQUEST)
        permissions.require(request, ResourceType.TRANSACTIONAL_ID, body.transactional_id)
        permissions.require(request, ResourceType.GROUP, body.group_id)
        answer = transactions.add(
            body.transactional_id,
            ProducerEpoch(body.producer_id, body.producer_epoch),
            offsets_partition(groups, body.group_id),
            client_version=0,
        )
    except KafkaError as error:
        return refuse(error)
    return shown(answer, lambda code: AddOffsetsToTxnResponse(error_code=code), refuse)


def offsets_partition(groups: GroupCoordinators, group_id: str) -> dict[str, frozenset[int]]:
    """The partition that holds a group's offsets."""
    count = len(groups.shards.all)
    if count == 0:
        raise KafkaError(KafkaCode.COORDINATOR_NOT_AVAILABLE)
    return {OFFSETS_TOPIC: frozenset({partition_for(group_id, count)})}
