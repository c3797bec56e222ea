"""Transactional ids: who is writing, since when, and where."""

from dataclasses import dataclass
from typing import Final

from millstream.console.asking import AskFailed, check
from millstream.console.console import Console
from millstream.console.page import Page, Values
from millstream.wire.apis.describe_transactions import DescribeTransactionsRequest
from millstream.wire.apis.list_transactions import ListTransactionsRequest

_DESCRIBED_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class TransactionRow:
    transactional_id: str
    producer_id: int
    state: str
    # Of an open transaction; None without one, and where it was not asked.
    started_ms: int | None
    timeout_ms: int | None
    partitions: list[str]


@dataclass(frozen=True, slots=True)
class Transactions:
    rows: list[TransactionRow]
    count: int
    failures: list[str]
    now_ms: int


async def transactions(console: Console, values: Values) -> Transactions:
    rows: list[TransactionRow] = []
    failures: list[str] = []
    count = 0
    for node in (await console.facts()).nodes:
        try:
            found = await _of_node(console, node.node_id)
        except AskFailed as failed:
            failures.append(str(failed))
            continue
        rows += found[0]
        count += found[1]
    rows.sort(key=lambda row: (row.started_ms is None, row.started_ms or 0, row.transactional_id))
    return Transactions(rows, count, failures, console.clock.now_ms())


async def _of_node(console: Console, node_id: int) -> tuple[list[TransactionRow], int]:
    request = ListTransactionsRequest(state_filters=[], producer_id_filters=[])
    answer = await console.client.ask(node_id, request, 0)
    check(answer.error_code, "transactions")
    # Those that are under way are what people look for.
    listed = sorted(
        answer.transaction_states,
        key=lambda one: (one.transaction_state != "Ongoing", one.transactional_id),
    )
    ids = [one.transactional_id for one in listed[:_DESCRIBED_MAX]]
    if not ids:
        return [], 0
    described = await console.client.ask(
        node_id, DescribeTransactionsRequest(transactional_ids=ids), 0
    )
    rows = [
        TransactionRow(
            one.transactional_id,
            one.producer_id,
            one.transaction_state,
            one.transaction_start_time_ms if one.topics else None,
            one.transaction_timeout_ms,
            [f"{topic.topic}-{index}" for topic in one.topics for index in topic.partitions],
        )
        for one in described.transaction_states
        if one.error_code == 0
    ]
    return rows, len(listed)


PAGES = (Page("/transactions", "transactions.html", transactions, "Transactional ids"),)
