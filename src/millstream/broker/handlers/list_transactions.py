"""ListTransactions (66), versions 0-2: by state and producer; from 1 by age, from 2 by name."""

import re
from typing import Final

from millstream.broker.coordination.transactions import TransactionCoordinator
from millstream.broker.handlers.describe_transactions import state_name
from millstream.broker.node.state import NodeState
from millstream.broker.requests.request import Request
from millstream.coordinators.transactions.state import Transaction
from millstream.errors import KafkaCode, KafkaError
from millstream.wire.apis.list_transactions import (
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

STATE_NAMES: Final = frozenset(
    {
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    }
)


async def handle(
    node: NodeState,
    transactions: TransactionCoordinator,
    request: Request,
    body: ListTransactionsRequest,
) -> ListTransactionsResponse:
    unknown = [name for name in body.state_filters if name not in STATE_NAMES]
    try:
        pattern = re.compile(body.transactional_id_pattern or "")
        shards = await transactions.shards.active()
    except re.error:
        return _answer(KafkaCode.INVALID_REGULAR_EXPRESSION, unknown, [])
    except KafkaError as error:
        return _answer(error.code, unknown, [])
    now_ms = node.clock.now_ms()
    found = [
        transaction
        for shard in shards
        for transaction in shard.state.transactions.values()
        if _is_wanted(transaction, body, pattern, now_ms)
    ]
    return _answer(KafkaCode.NONE, unknown, found)


def _is_wanted(
    transaction: Transaction, body: ListTransactionsRequest, pattern: "re.Pattern[str]", now_ms: int
) -> bool:
    stored = transaction.stored
    if body.state_filters and state_name(stored) not in body.state_filters:
        return False
    if body.producer_id_filters and stored.producer_id not in body.producer_id_filters:
        return False
    if body.duration_filter >= 0 and now_ms - stored.start_ms <= body.duration_filter:
        return False
    if body.duration_filter >= 0 and stored.start_ms < 0:
        return False
    return not pattern.pattern or pattern.fullmatch(transaction.transactional_id) is not None


def _answer(
    code: KafkaCode, unknown: list[str], found: list[Transaction]
) -> ListTransactionsResponse:
    return ListTransactionsResponse(
        error_code=code,
        unknown_state_filters=unknown,
        transaction_states=[
            ListedTransaction(
                transactional_id=one.transactional_id,
                producer_id=one.stored.producer_id,
                transaction_state=state_name(one.stored),
            )
            for one in sorted(found, key=lambda one: one.transactional_id)
        ],
    )
