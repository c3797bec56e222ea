"""InitProducerId (22), versions 0-6 (5 are listed): an id for a producer, never reused.

With a transactional id, the producer also takes over that id: the previous owner is fenced
and its open transaction aborted. From 3 on, a producer may request a new epoch after an error.
"""

from millstream.broker.coordination.hosting import Coordinators
from millstream.broker.coordination.producer_ids import ProducerIds
from millstream.broker.coordination.transactions import wait_for
from millstream.broker.node.state import NodeState
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.transaction_codes import init_producer_id_code
from millstream.coordinators.decision import ProducerEpoch
from millstream.coordinators.transactions.decisions import InitRequest, init_producer
from millstream.errors import KafkaCode, KafkaError
from millstream.model import NO_PRODUCER_ID
from millstream.security.acl import ResourceType
from millstream.security.operations import WITHOUT_ID
from millstream.wire.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


async def handle(
    node: NodeState,
    coordination: Coordinators,
    producer_ids: ProducerIds,
    permissions: Permissions,
    request: Request,
    body: InitProducerIdRequest,
) -> InitProducerIdResponse:
    try:
        _check(permissions, request, body.transactional_id)
        if body.enable2_pc or body.keep_prepared_txn:
            # Kafka's answer if two-phase commit (KIP-939) is not allowed.
            raise KafkaError(KafkaCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if body.transactional_id is not None:
            coordination.transactions.admit(body.transactional_id, request.connection.client)
            return await _take_over(coordination, producer_ids, body, body.transactional_id)
        coordination.creations.admit(request.connection.client, now_ms=node.now_ms())
        producer_id = await producer_ids.next()
    except KafkaError as error:
        code = init_producer_id_code(error.code, request.version)
        return InitProducerIdResponse(
            error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=-1
        )
    return InitProducerIdResponse(
        error_code=KafkaCode.NONE, producer_id=producer_id, producer_epoch=0
    )


def _check(permissions: Permissions, request: Request, transactional_id: str | None) -> None:
    """Raises KafkaError. Without a transactional id, a client that may write somewhere may be
    idempotent (KIP-679)."""
    if transactional_id is not None:
        permissions.require(request, ResourceType.TRANSACTIONAL_ID, transactional_id)
    elif not (
        permissions.allows_cluster(request, WITHOUT_ID)
        or permissions.allows_on_any(request, ResourceType.TOPIC, WITHOUT_ID)
    ):
        raise KafkaError(KafkaCode.CLUSTER_AUTHORIZATION_FAILED)


async def _take_over(
    coordination: Coordinators,
    producer_ids: ProducerIds,
    body: InitProducerIdRequest,
    transactional_id: str,
) -> InitProducerIdResponse:
    if transactional_id == "" or (body.producer_id >= 0) is not (body.producer_epoch >= 0):
        raise KafkaError(KafkaCode.INVALID_REQUEST)
    current = None
    if body.producer_id >= 0:
        current = ProducerEpoch(body.producer_id, body.producer_epoch)
    wanted = InitRequest(transactional_id, body.transaction_timeout_ms, current)
    await producer_ids.ensure()
    given = await wait_for(
        coordination.transactions.submit(
            transactional_id, lambda state, env: init_producer(state, wanted, env)
        )
    )
    return InitProducerIdResponse(
        error_code=KafkaCode.NONE, producer_id=given.producer_id, producer_epoch=given.epoch
    )
