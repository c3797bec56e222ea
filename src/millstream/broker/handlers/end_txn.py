"""EndTxn (26), versions 0-5: commit or abort. From 5 on, the response has a new epoch."""

from typing import Final

from millstream.broker.coordination.producer_ids import ProducerIds
from millstream.broker.coordination.transactions import TransactionCoordinator, wait_for
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.transaction_codes import end_txn_code
from millstream.coordinators.decision import ProducerEpoch
from millstream.coordinators.transactions.decisions import EPOCH_PER_TRANSACTION, EndRequest, end
from millstream.errors import KafkaCode, KafkaError
from millstream.model import NO_PRODUCER_ID
from millstream.security.acl import ResourceType
from millstream.wire.apis.end_txn import EndTxnRequest, EndTxnResponse

HOLDS_NEXT_REQUEST = True

BUMPS_FROM: Final = 5


async def handle(
    transactions: TransactionCoordinator,
    producer_ids: ProducerIds,
    permissions: Permissions,
    request: Request,
    body: EndTxnRequest,
) -> EndTxnResponse:
    wanted = EndRequest(
        body.transactional_id,
        ProducerEpoch(body.producer_id, body.producer_epoch),
        body.committed,
        EPOCH_PER_TRANSACTION if request.version >= BUMPS_FROM else 0,
    )
    try:
        if not body.transactional_id:
            raise KafkaError(KafkaCode.INVALID_REQUEST)
        permissions.require(request, ResourceType.TRANSACTIONAL_ID, body.transactional_id)
        await producer_ids.ensure()
        given = await wait_for(
            transactions.submit(body.transactional_id, lambda state, env: end(state, wanted, env))
        )
    except KafkaError as error:
        code = end_txn_code(error.code, request.version)
        return EndTxnResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=-1)
    return EndTxnResponse(
        error_code=KafkaCode.NONE, producer_id=given.producer_id, producer_epoch=given.epoch
    )
