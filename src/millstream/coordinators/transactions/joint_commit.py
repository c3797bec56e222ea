"""One commit for the transactions of many producers, under a group's name and a batch number.

Producers that are committed together have transactional ids of the form
`millstream:<group>:<member>`. All of a group are in one shard, so that a commit is one
batch of records, written as a whole or not at all: the batch number, a PREPARE_COMMIT for
each named member, a PREPARE_ABORT for each other one. The number only grows; a number that
was committed gets the answer `already_committed` and has no effect.

The caller may name its run. The latest run owns the group: from its first request on,
earlier runs are refused, however late they wake up.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from millstream.coordinators.codecs.transactions import (
    BatchChange,
    Change,
    CommittedBatch,
    encode,
)
from millstream.coordinators.decision import ProducerEpoch
from millstream.coordinators.journal import BATCH_BYTES_MAX
from millstream.coordinators.transactions.decisions import (
    EPOCH_MAX,
    Decision,
    find,
    no_timeout,
)
from millstream.coordinators.transactions.state import (
    PREPARED,
    Status,
    Transaction,
    TransactionEnv,
    TransactionsState,
    change_of,
)
from millstream.errors import KafkaCode, KafkaError
from millstream.lazy_dataclass import dataclass

PREFIX: Final = "millstream:"
NO_BATCH: Final = -1
NAME_LENGTH_MAX: Final = 1_000
# A run with this many successors is not expected to wake up any more.
FENCED_RUNS_MAX: Final = 16
# Stored instead of the member's version: a later EndTxn of the member is not a repetition of
# this commit, and gets no new epoch.
_NOT_BY_CLIENT: Final = 0
# The size of a record in its batch besides key and value.
_RECORD_OVERHEAD_BYTES: Final = 32


def group_of(transactional_id: str) -> str | None:
    """The group that a producer belongs to; None for all others."""
    if not transactional_id.startswith(PREFIX):
        return None
    group, colon, _ = transactional_id[len(PREFIX) :].rpartition(":")
    return group if colon and group else None


def id_prefix(group: str) -> str:
    """What the transactional ids of a group's members begin with."""
    return f"{PREFIX}{group}:"


def shard_name(transactional_id: str) -> str:
    """The name that selects the shard: the members of a group stay together."""
    return group_of(transactional_id) or transactional_id


@dataclass(frozen=True, slots=True)
class Member:
    transactional_id: str
    producer: ProducerEpoch


@dataclass(frozen=True, slots=True)
class GroupReply:
    last_batch: int
    # The number was committed before; this request did nothing.
    is_repeated: bool


def commit_group(
    state: TransactionsState,
    group: str,
    run: str,
    batch: int,
    members: Sequence[Member],
    env: TransactionEnv,
) -> Decision[GroupReply]:
    _check_name(group)
    if batch < 0:
        raise KafkaError(KafkaCode.INVALID_REQUEST, "batches are numbered from 0 on")
    last = _taken_over(state, group, run)
    if batch <= last.number:
        return Decision(GroupReply(last.number, is_repeated=True))
    chosen = _chosen(state, group, members)
    decision = Decision(GroupReply(batch, is_repeated=False))
    committed = replace(last, number=batch, timestamp_ms=env.now_ms)
    decision.records.append(BatchChange(group, committed))
    for transaction in chosen.values():
        _end(transaction, Status.PREPARE_COMMIT, env, decision)
    for name, transaction in state.transactions.items():
        is_left_out = transaction.status is Status.ONGOING and name not in chosen
        if is_left_out and group_of(name) == group:
            _end(transaction, Status.PREPARE_ABORT, env, decision)
    _check_size(decision.records)
    return decision


def _chosen(
    state: TransactionsState, group: str, members: Sequence[Member]
) -> dict[str, Transaction]:
    """The transactions to commit. Raises KafkaError unless all of them can be."""
    chosen: dict[str, Transaction] = {}
    for member in members:
        name = member.transactional_id
        if group_of(name) != group or name in chosen:
            text = f"{name} is not a member of {group}, or named twice"
            raise KafkaError(KafkaCode.INVALID_REQUEST, text)
        transaction = find(state, name, member.producer)
        if transaction.status in PREPARED:
            raise KafkaError(KafkaCode.CONCURRENT_TRANSACTIONS, name)
        if transaction.status is not Status.ONGOING:
            raise KafkaError(KafkaCode.INVALID_TXN_STATE, f"{name} has no open transaction")
        chosen[name] = transaction
    return chosen


def _end(
    transaction: Transaction, status: Status, env: TransactionEnv, decision: Decision[GroupReply]
) -> None:
    value = transaction.moved_to(status, env.now_ms)
    value = replace(
        value,
        # Late writes of this producer must not begin another transaction.
        producer_epoch=min(value.producer_epoch + 1, EPOCH_MAX),
        client_version=_NOT_BY_CLIENT,
    )
    decision.records.append(change_of(transaction, value))
    decision.deadlines.append(no_timeout(transaction))
    decision.when_committed.append(transaction.transactional_id)


def _check_size(records: Sequence[Change]) -> None:
    """A crash could split anything larger than one batch."""
    size_bytes = 0
    for change in records:
        key, value = encode(change)
        size_bytes += len(key) + len(value or b"") + _RECORD_OVERHEAD_BYTES
    if size_bytes > BATCH_BYTES_MAX:
        raise KafkaError(
            KafkaCode.MESSAGE_TOO_LARGE, f"a commit of {len(records)} transactions is too large"
        )


def last_batch(
    state: TransactionsState, group: str, run: str, env: TransactionEnv
) -> Decision[int]:
    """The last committed number. A new run takes over the group."""
    last = state.batches.get(group)
    now = _taken_over(state, group, run)
    decision = Decision(now.number)
    if run and (last is None or last.run != run):
        _check_name(group)
        decision.records.append(BatchChange(group, replace(now, timestamp_ms=env.now_ms)))
    return decision


def _check_name(group: str) -> None:
    if not group or len(group) > NAME_LENGTH_MAX:
        raise KafkaError(KafkaCode.INVALID_REQUEST, "a group has a name, and not a long one")


def _taken_over(state: TransactionsState, group: str, run: str) -> CommittedBatch:
    """The group as this run owns it. Raises KafkaError if a later run has taken it over."""
    last = state.batches.get(group) or CommittedBatch(NO_BATCH, 0)
    if not run or run == last.run:
        return last
    if len(run) > NAME_LENGTH_MAX:
        raise KafkaError(KafkaCode.INVALID_REQUEST, "the name of a run is too long")
    if run in last.fenced_runs:
        raise KafkaError(
            KafkaCode.FENCED_INSTANCE_ID, f"run {run} of {group} was followed by run {last.run}"
        )
    fenced = (*last.fenced_runs, last.run) if last.run else last.fenced_runs
    return replace(last, run=run, fenced_runs=fenced[-FENCED_RUNS_MAX:])


def expire_group(state: TransactionsState, group: str, env: TransactionEnv) -> Decision[None]:
    last = state.batches.get(group)
    if last is None or env.now_ms - last.timestamp_ms < env.settings.expiration_ms:
        return Decision()
    return Decision(records=[BatchChange(group, None)])
