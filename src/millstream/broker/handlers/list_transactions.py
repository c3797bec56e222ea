"""ListTransactions (66), versions 0-2: by state and producer; from 1 by age, from 2 by name."""

import time
from typing import Final

from millstream.broker.coordination.transactions import TransactionCoordinator
from millstream.broker.handlers.describe_transactions import state_name
from millstream.broker.node.state import NodeState
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import Turns, stop_if_abandoned
from millstream.coordinators.consumer.pattern import TopicPattern, compile_pattern
from millstream.coordinators.transactions.state import Transaction
from millstream.errors import KafkaCode, KafkaError
from millstream.security.acl import ResourceType
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

# For how long a request matches until other requests have the thread.
_STEP_SECONDS_MAX: Final = 0.01


async def handle(
    node: NodeState,
    transactions: TransactionCoordinator,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    body: ListTransactionsRequest,
) -> ListTransactionsResponse:
    # Tools that look for hanging transactions name the producers of all that they suspect.
    producer_ids = await turns.prepared(
        request, lambda each: frozenset(each(body.producer_id_filters))
    )
    states = await turns.prepared(request, lambda each: dict.fromkeys(each(body.state_filters)))
    unknown = [name for name in states if name not in STATE_NAMES]
    text = body.transactional_id_pattern
    try:
        pattern = compile_pattern(text) if text else None
        now_ms = node.clock.now_ms()
        found = [
            transaction
            for shard in await transactions.shards.active()
            async for transaction in turns.each_in_line(
                request, list(shard.listed_state().transactions.values())
            )
            if (not states or state_name(transaction.stored) in states)
            and (not producer_ids or transaction.stored.producer_id in producer_ids)
            and (body.duration_filter < 0 or _is_older(transaction, body.duration_filter, now_ms))
        ]
    except KafkaError as error:
        return _answer(error.code, unknown, [])
    if pattern is not None:
        found = await _matching(turns, request, pattern, found)
    found = [
        transaction
        async for transaction in turns.each_in_line(request, found)
        if permissions.allows(request, ResourceType.TRANSACTIONAL_ID, transaction.transactional_id)
    ]
    return _answer(KafkaCode.NONE, unknown, found)


async def _matching(
    turns: Turns, request: Request, pattern: TopicPattern, transactions: list[Transaction]
) -> list[Transaction]:
    """In a thread: an id may have 32 KB, and a hostile pattern takes 0.1 s for that."""
    matched: list[Transaction] = []
    left = iter(transactions)
    pace = turns.pace(request)

    def step() -> bool:
        """Match the next; False when there are no more."""
        ends_at = time.perf_counter() + _STEP_SECONDS_MAX
        for one in pace(left):
            if pattern.matches(one.transactional_id):
                matched.append(one)
            if time.perf_counter() > ends_at:
                return True
        return False

    while await turns.in_thread(step):
        stop_if_abandoned(request)
    return matched


def _is_older(transaction: Transaction, duration_ms: int, now_ms: int) -> bool:
    start_ms = transaction.stored.start_ms
    return start_ms >= 0 and now_ms - start_ms > duration_ms


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
