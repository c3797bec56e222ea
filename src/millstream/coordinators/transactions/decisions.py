"""The transaction coordinator: its decisions for a producer with a transactional id.

One record, PREPARE_COMMIT or PREPARE_ABORT, decides a transaction. Only when it is
committed are markers written to the partitions, and only when those are committed does the
COMPLETE record follow. After a crash the log says what is left to do. A newer producer
takes over the id by raising its epoch, durably, before it is answered.

PREPARED are the two states in between: decided, the markers are being written. AT_REST is a
producer whose last transaction is complete, or that has had none.

A transaction times out `timeout_ms` after its first partition was added. A deadline of the
journal then aborts it under a raised epoch (`abort_timed_out`). The producer's commit gets
PRODUCER_FENCED, and it must begin anew. A client with an epoch per transaction gets
INVALID_TXN_STATE for its commit; if it aborts instead, it gets the raised epoch and goes on
(`end`). After a restart the time still counts from the transaction's start (`after_replay`).

Plain functions over `TransactionsState`; every error response is a KafkaError.
"""

from dataclasses import replace
from typing import Final, Generic, TypeVar

from millstream.coordinators.codecs.transactions import (
    NO_ID,
    Change,
    Partitions,
    StoredTransaction,
    TransactionChange,
)
from millstream.coordinators.decision import (
    Deadline,
    DeadlineKey,
    DeadlineKind,
    DecisionOf,
    ProducerEpoch,
)
from millstream.coordinators.transactions.state import (
    AT_REST,
    PREPARED,
    ProducerReply,
    Status,
    Transaction,
    TransactionEnv,
    TransactionsState,
    change_of,
    includes,
    with_partitions,
)
from millstream.errors import KafkaCode, KafkaError
from millstream.lazy_dataclass import dataclass

R = TypeVar("R")
EPOCH_MAX: Final = 2**15 - 1
# The last epoch that a client can get; the one above is for fencing it.
_EPOCH_LAST: Final = EPOCH_MAX - 1
# From here on a client gets a new epoch with every transaction (KIP-890).
EPOCH_PER_TRANSACTION: Final = 2


class Decision(DecisionOf[R, Change, TransactionEnv], Generic[R]):
    """A decision of the transaction coordinator."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class InitRequest:
    transactional_id: str
    timeout_ms: int
    # The client's present id and epoch, if it wants to continue after an error (KIP-360).
    current: ProducerEpoch | None = None


def init_producer(
    state: TransactionsState, request: InitRequest, env: TransactionEnv
) -> Decision[ProducerReply]:
    """Give the id to the caller, and fence its previous owner.

    While a transaction of the id is open or being ended, the answer is CONCURRENT_TRANSACTIONS,
    and the client asks again: an open one is aborted first, under an epoch that fences its
    producer; one that is prepared only waits for its markers.
    """
    if not 0 < request.timeout_ms <= env.settings.timeout_max_ms:
        raise KafkaError(KafkaCode.INVALID_TRANSACTION_TIMEOUT)
    transaction = state.transactions.get(request.transactional_id)
    if transaction is None:
        value = StoredTransaction(
            env.take_producer_id(), 0, request.timeout_ms, last_update_ms=env.now_ms
        )
        return Decision(
            ProducerReply(value.producer_id, 0),
            [TransactionChange(request.transactional_id, value)],
        )
    _check_current(transaction, request.current)
    if transaction.status in PREPARED:
        raise KafkaError(KafkaCode.CONCURRENT_TRANSACTIONS)
    if transaction.status is Status.ONGOING:
        decision: Decision[ProducerReply] = Decision()
        fence_and_abort(transaction, env, decision)
        # The client retries, and finds the old transaction ended.
        decision.replies.append((env.ticket, KafkaError(KafkaCode.CONCURRENT_TRANSACTIONS)))
        return decision
    return _next_epoch(transaction, request, env)


def _check_current(transaction: Transaction, current: ProducerEpoch | None) -> None:
    if current is None:
        return
    stored = transaction.stored
    if current.producer_id == stored.producer_id:
        if current.epoch in (stored.producer_epoch, transaction.last_epoch):
            return
    elif current.producer_id == stored.previous_producer_id and current.epoch >= _EPOCH_LAST:
        return
    raise KafkaError(KafkaCode.PRODUCER_FENCED)


def _next_epoch(
    transaction: Transaction, request: InitRequest, env: TransactionEnv
) -> Decision[ProducerReply]:
    stored, current = transaction.stored, request.current
    if current is not None and current != ProducerEpoch(stored.producer_id, stored.producer_epoch):
        # The client repeats its request: the response was lost.
        return Decision(ProducerReply(stored.producer_id, stored.producer_epoch))
    value = replace(
        transaction.moved_to(Status.EMPTY, env.now_ms),
        timeout_ms=request.timeout_ms,
        partitions={},
        start_ms=-1,
    )
    if stored.producer_epoch >= _EPOCH_LAST:
        value = replace(
            value,
            producer_id=env.take_producer_id(),
            previous_producer_id=stored.producer_id,
            producer_epoch=0,
        )
    else:
        value = replace(value, producer_epoch=stored.producer_epoch + 1)
    transaction.last_epoch = -1 if current is None else current.epoch
    return Decision(
        ProducerReply(value.producer_id, value.producer_epoch), [change_of(transaction, value)]
    )


def fence_and_abort(
    transaction: Transaction, env: TransactionEnv, decision: DecisionOf[R, Change, TransactionEnv]
) -> None:
    """Abort an open transaction under a newer epoch, which fences its producer."""
    value = transaction.moved_to(Status.PREPARE_ABORT, env.now_ms)
    epoch = min(value.producer_epoch + 1, EPOCH_MAX)
    decision.records.append(change_of(transaction, replace(value, producer_epoch=epoch)))
    decision.deadlines.append(no_timeout(transaction))
    decision.when_committed.append(transaction.transactional_id)


def find(state: TransactionsState, transactional_id: str, producer: ProducerEpoch) -> Transaction:
    """The transaction of a producer, which must be the newest one."""
    transaction = state.transactions.get(transactional_id)
    if transaction is None or transaction.stored.producer_id != producer.producer_id:
        raise KafkaError(KafkaCode.INVALID_PRODUCER_ID_MAPPING)
    if transaction.stored.producer_epoch != producer.epoch:
        raise KafkaError(KafkaCode.PRODUCER_FENCED)
    return transaction


def add_partitions(
    state: TransactionsState,
    transactional_id: str,
    producer: ProducerEpoch,
    partitions: Partitions,
    *,
    client_version: int,
    env: TransactionEnv,
) -> Decision[KafkaCode]:
    """Add partitions to the transaction, and begin it if none is open."""
    transaction = find(state, transactional_id, producer)
    if transaction.status in PREPARED:
        raise KafkaError(KafkaCode.CONCURRENT_TRANSACTIONS)
    is_ongoing = transaction.status is Status.ONGOING
    if is_ongoing and includes(transaction.stored.partitions, partitions):
        return Decision(KafkaCode.NONE)
    held = transaction.stored.partitions if is_ongoing else {}
    value = replace(
        transaction.moved_to(Status.ONGOING, env.now_ms),
        partitions=with_partitions(held, partitions),
        start_ms=transaction.stored.start_ms if is_ongoing else env.now_ms,
        client_version=client_version,
    )
    decision = Decision(KafkaCode.NONE, [change_of(transaction, value)])
    if not is_ongoing:
        decision.deadlines.append(
            Deadline(_timeout_key(transaction), env.uptime_ms + value.timeout_ms)
        )
    return decision


def verify_partitions(
    state: TransactionsState, transactional_id: str, producer: ProducerEpoch, wanted: Partitions
) -> Decision[dict[tuple[str, int], KafkaCode]]:
    """Are these partitions in the open transaction? (KIP-890, for clients that add them first)"""
    transaction = find(state, transactional_id, producer)
    if transaction.status in PREPARED:
        raise KafkaError(KafkaCode.CONCURRENT_TRANSACTIONS)
    held = transaction.stored.partitions if transaction.status is Status.ONGOING else {}
    return Decision(
        {
            (topic, index): (
                KafkaCode.NONE if index in held.get(topic, ()) else KafkaCode.TRANSACTION_ABORTABLE
            )
            for topic, indexes in wanted.items()
            for index in indexes
        }
    )


@dataclass(frozen=True, slots=True)
class EndRequest:
    transactional_id: str
    producer: ProducerEpoch
    is_commit: bool
    client_version: int


def end(
    state: TransactionsState, request: EndRequest, env: TransactionEnv
) -> Decision[ProducerReply]:
    """Commit or abort. Answered when the markers are written, so that the next transaction
    of the same producer does not run into this one."""
    transaction = state.transactions.get(request.transactional_id)
    if transaction is None:
        raise KafkaError(KafkaCode.INVALID_PRODUCER_ID_MAPPING)
    is_retry = _check_ender(transaction, request)
    stored, status = transaction.stored, transaction.status
    if status in PREPARED:
        is_same = (status is Status.PREPARE_COMMIT) is request.is_commit
        raise KafkaError(
            KafkaCode.CONCURRENT_TRANSACTIONS if is_same else KafkaCode.INVALID_TXN_STATE
        )
    bumps = request.client_version >= EPOCH_PER_TRANSACTION
    if status in AT_REST and (is_retry or not bumps):
        done = Status.COMPLETE_COMMIT if request.is_commit else Status.COMPLETE_ABORT
        if status is not done:
            raise KafkaError(KafkaCode.INVALID_TXN_STATE)
        return Decision(ProducerReply(stored.producer_id, stored.producer_epoch))
    if status in AT_REST and request.is_commit:
        raise KafkaError(KafkaCode.INVALID_TXN_STATE)
    return prepare(transaction, request, env)


def _check_ender(transaction: Transaction, request: EndRequest) -> bool:
    """Raises KafkaError for an outdated producer; returns whether this is a repeated request.

    With an epoch per transaction, the previous epoch can only refer to the transaction that
    ended last.
    """
    stored, producer = transaction.stored, request.producer
    bumps = request.client_version >= EPOCH_PER_TRANSACTION
    is_ended = bumps and transaction.status not in (Status.ONGOING, Status.EMPTY)
    has_bumped = is_ended and stored.client_version >= EPOCH_PER_TRANSACTION
    if producer.producer_id != stored.producer_id:
        is_overflow = producer == ProducerEpoch(stored.previous_producer_id, _EPOCH_LAST)
        if has_bumped and is_overflow and stored.producer_epoch == 0:
            return True
        raise KafkaError(KafkaCode.INVALID_PRODUCER_ID_MAPPING)
    if has_bumped and producer.epoch + 1 == stored.producer_epoch:
        return True
    is_current = producer.epoch == stored.producer_epoch
    if not is_current or (has_bumped and transaction.status in PREPARED):
        raise KafkaError(KafkaCode.PRODUCER_FENCED)
    return False


def prepare(
    transaction: Transaction, request: EndRequest, env: TransactionEnv
) -> Decision[ProducerReply]:
    """The record that decides; the caller waits for the markers."""
    status = Status.PREPARE_COMMIT if request.is_commit else Status.PREPARE_ABORT
    value = transaction.moved_to(status, env.now_ms)
    if transaction.status in AT_REST:
        value = replace(value, partitions={}, start_ms=env.now_ms)
    value = replace(value, client_version=request.client_version)
    reply = ProducerReply(value.producer_id, value.producer_epoch)
    if request.client_version >= EPOCH_PER_TRANSACTION:
        # The markers carry the new epoch, so that late writes with the old one are refused.
        value = replace(value, producer_epoch=value.producer_epoch + 1)
        reply = ProducerReply(value.producer_id, value.producer_epoch)
        if value.producer_epoch > _EPOCH_LAST:
            value = replace(value, next_producer_id=env.take_producer_id())
            reply = ProducerReply(value.next_producer_id, 0)
    transaction.waiting.append((env.ticket, reply))
    return Decision(
        records=[change_of(transaction, value)],
        deadlines=[no_timeout(transaction)],
        when_committed=[transaction.transactional_id],
    )


def answer_waiting(state: TransactionsState, transactional_id: str) -> Decision[None]:
    """A partition cannot write its marker now. The decision is final, so it can be answered."""
    transaction = state.transactions.get(transactional_id)
    if transaction is None:
        return Decision()
    waiting, transaction.waiting = transaction.waiting, []
    return Decision(replies=[(ticket, reply) for ticket, reply in waiting])


def markers_are_written(
    state: TransactionsState,
    transactional_id: str,
    prepared: StoredTransaction,
    env: TransactionEnv,
) -> Decision[None]:
    """Answer waiting requests, then complete: the answer reveals nothing that could be undone.

    `prepared` is what the markers were written for; a later transaction has its own.
    """
    transaction = state.transactions.get(transactional_id)
    if transaction is None or transaction.stored is not prepared:
        return Decision()
    waiting, transaction.waiting = transaction.waiting, []
    return Decision(
        replies=[(ticket, reply) for ticket, reply in waiting],
        then=lambda env: Decision(records=[change_of(transaction, completed(transaction, env))]),
    )


def completed(transaction: Transaction, env: TransactionEnv) -> StoredTransaction:
    is_commit = transaction.status is Status.PREPARE_COMMIT
    status = Status.COMPLETE_COMMIT if is_commit else Status.COMPLETE_ABORT
    value = replace(transaction.moved_to(status, env.now_ms), partitions={})
    if value.next_producer_id == NO_ID:
        return value
    return replace(
        value,
        producer_id=value.next_producer_id,
        producer_epoch=0,
        previous_producer_id=value.producer_id,
        next_producer_id=NO_ID,
    )


def abort_timed_out(
    state: TransactionsState, transactional_id: str, env: TransactionEnv
) -> Decision[None]:
    """The producer has exceeded its transaction timeout."""
    transaction = state.transactions.get(transactional_id)
    decision: Decision[None] = Decision()
    if transaction is not None and transaction.status is Status.ONGOING:
        fence_and_abort(transaction, env, decision)
    return decision


def expire(state: TransactionsState, transactional_id: str, env: TransactionEnv) -> Decision[None]:
    """Forget an id that was not used for a long time."""
    transaction = state.transactions.get(transactional_id)
    if transaction is None or transaction.status not in AT_REST:
        return Decision()
    if env.now_ms - transaction.stored.last_update_ms < env.settings.expiration_ms:
        return Decision()
    return Decision(records=[change_of(transaction, None)])


def deadline_is_over(
    state: TransactionsState, key: DeadlineKey, env: TransactionEnv
) -> Decision[None]:
    assert key.kind is DeadlineKind.TRANSACTION, key
    return abort_timed_out(state, key.group_id, env)


def after_replay(state: TransactionsState, env: TransactionEnv) -> Decision[None]:
    """Timeouts still count from the start of the transaction; decisions are carried out."""
    decision: Decision[None] = Decision()
    for transaction in state.transactions.values():
        if transaction.status is Status.ONGOING:
            elapsed_ms = max(env.now_ms - transaction.stored.start_ms, 0)
            left_ms = max(transaction.stored.timeout_ms - elapsed_ms, 0)
            decision.deadlines.append(Deadline(_timeout_key(transaction), env.uptime_ms + left_ms))
        elif transaction.status in PREPARED:
            decision.when_committed.append(transaction.transactional_id)
    return decision


def _timeout_key(transaction: Transaction) -> DeadlineKey:
    return DeadlineKey(DeadlineKind.TRANSACTION, transaction.transactional_id, "")


def no_timeout(transaction: Transaction) -> Deadline:
    return Deadline(_timeout_key(transaction), None)
