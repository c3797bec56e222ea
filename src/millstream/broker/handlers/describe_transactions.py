"""DescribeTransactions (65), version 0: the state of transactional ids."""

from millstream.broker.coordination.transactions import TransactionCoordinator, wait_for
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import Turns
from millstream.coordinators.codecs.transactions import StoredTransaction
from millstream.coordinators.transactions.decisions import Decision
from millstream.coordinators.transactions.state import TransactionsState
from millstream.errors import KafkaCode, KafkaError
from millstream.security.acl import ResourceType
from millstream.wire.apis.describe_transactions import (
    DescribedTransaction,
    DescribedTransactionTopic,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)


async def handle(
    transactions: TransactionCoordinator,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    body: DescribeTransactionsRequest,
) -> DescribeTransactionsResponse:
    wanted = await turns.prepared(request, lambda each: dict.fromkeys(each(body.transactional_ids)))
    return DescribeTransactionsResponse(
        transaction_states=[
            await _one(transactions, permissions, request, name)
            async for name in turns.each_in_line(request, wanted)
        ]
    )


async def _one(
    transactions: TransactionCoordinator, permissions: Permissions, request: Request, name: str
) -> DescribedTransaction:
    try:
        if not name:
            raise KafkaError(KafkaCode.INVALID_REQUEST)
        permissions.require(request, ResourceType.TRANSACTIONAL_ID, name)
        found = await wait_for(
            transactions.submit(name, lambda state, env: Decision(_find(state, name)))
        )
    except KafkaError as error:
        return DescribedTransaction(
            error_code=error.code,
            transactional_id=name,
            transaction_state="",
            transaction_timeout_ms=0,
            transaction_start_time_ms=0,
            producer_id=0,
            producer_epoch=0,
            topics=[],
        )
    return DescribedTransaction(
        error_code=KafkaCode.NONE,
        transactional_id=name,
        transaction_state=state_name(found),
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.start_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=[
            DescribedTransactionTopic(topic=topic, partitions=sorted(indexes))
            for topic, indexes in sorted(found.partitions.items())
            if permissions.allows(request, ResourceType.TOPIC, topic)
        ],
    )


def _find(state: TransactionsState, name: str) -> StoredTransaction:
    transaction = state.transactions.get(name)
    if transaction is None:
        raise KafkaError(KafkaCode.TRANSACTIONAL_ID_NOT_FOUND)
    return transaction.stored


def state_name(stored: StoredTransaction) -> str:
    """As Kafka spells it: PrepareCommit, for example."""
    return stored.status.name.title().replace("_", "")
