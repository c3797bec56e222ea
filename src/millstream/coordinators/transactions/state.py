"""The state of one shard of transactions, and the one table of legal transitions.

`apply` is the only way to change it, now and in every replay. What lives in memory only
(which requests wait for the end of a transaction, which epoch was just replaced) may be lost:
clients retry.
"""

from collections.abc import Callable, Iterable
from dataclasses import field, replace
from typing import Final

from millstream.coordinators.codecs.transactions import (
    BatchChange,
    Change,
    CommittedBatch,
    Partitions,
    StoredTransaction,
    TransactionChange,
    TransactionStatus,
)
from millstream.coordinators.decision import Ticket
from millstream.lazy_dataclass import dataclass

Status = TransactionStatus

# From which states each state may be entered. Aborting an empty or a completed transaction
# is KIP-890's: a client that has added nothing gets its new epoch by an abort.
PREDECESSORS: Final[dict[Status, frozenset[Status]]] = {
    Status.EMPTY: frozenset({Status.EMPTY, Status.COMPLETE_COMMIT, Status.COMPLETE_ABORT}),
    Status.ONGOING: frozenset(
        {Status.EMPTY, Status.ONGOING, Status.COMPLETE_COMMIT, Status.COMPLETE_ABORT}
    ),
    Status.PREPARE_COMMIT: frozenset({Status.ONGOING}),
    Status.PREPARE_ABORT: frozenset(
        {Status.EMPTY, Status.ONGOING, Status.COMPLETE_COMMIT, Status.COMPLETE_ABORT}
    ),
    Status.COMPLETE_COMMIT: frozenset({Status.PREPARE_COMMIT}),
    Status.COMPLETE_ABORT: frozenset({Status.PREPARE_ABORT}),
}
# Decided, and the markers are being written.
PREPARED: Final = frozenset({Status.PREPARE_COMMIT, Status.PREPARE_ABORT})
# Nothing is open, and nothing is being ended.
AT_REST: Final = frozenset({Status.EMPTY, Status.COMPLETE_COMMIT, Status.COMPLETE_ABORT})


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    timeout_max_ms: int
    expiration_ms: int


@dataclass(frozen=True, slots=True)
class TransactionEnv:
    """Everything a decision may know besides its state and its request.

    `take_producer_id` returns an unused id; callers that may need one must ensure that one is
    available.
    """

    now_ms: int
    uptime_ms: int
    settings: TransactionSettings
    ticket: Ticket
    take_producer_id: Callable[[], int]


@dataclass(frozen=True, slots=True)
class ProducerReply:
    """An id and an epoch for the client to use from now on."""

    producer_id: int
    epoch: int


@dataclass(slots=True)
class Transaction:
    transactional_id: str
    stored: StoredTransaction
    # The epoch before the last InitProducerId, for a client that repeats it (KIP-360).
    last_epoch: int = -1
    # The request to answer when the markers are written, and its reply.
    waiting: list[tuple[Ticket, ProducerReply]] = field(default_factory=list)

    @property
    def status(self) -> Status:
        return self.stored.status

    def moved_to(self, status: Status, now_ms: int) -> StoredTransaction:
        """The stored value in another state. Illegal transitions are bugs, not answers."""
        check_transition(self.stored.status, status)
        return replace(self.stored, status=status, last_update_ms=now_ms)


def check_transition(before: Status, after: Status) -> None:
    assert before in PREDECESSORS[after], f"{before.name} cannot become {after.name}"


class TransactionsState:
    def __init__(self) -> None:
        self.transactions: dict[str, Transaction] = {}
        # The last committed batch of each group of producers.
        self.batches: dict[str, CommittedBatch] = {}

    def apply(self, change: Change) -> None:
        if isinstance(change, BatchChange):
            if change.value is None:
                self.batches.pop(change.group, None)
            else:
                self.batches[change.group] = change.value
            return
        name, value = change.transactional_id, change.value
        if value is None:
            self.transactions.pop(name, None)
            return
        known = self.transactions.get(name)
        if known is None:
            self.transactions[name] = Transaction(name, value)
        else:
            known.stored = value

    def apply_pending(self, change: Change, producer_id: int) -> None:
        raise AssertionError(f"{change} was written in a transaction of producer {producer_id}")

    def end_transaction(self, producer_id: int, is_commit: bool) -> Iterable[str]:
        return ()

    def names(self) -> Iterable[str]:
        return [*self.transactions, *self.batches]


def change_of(transaction: Transaction, value: StoredTransaction | None) -> TransactionChange:
    return TransactionChange(transaction.transactional_id, value)


def with_partitions(held: Partitions, added: Partitions) -> Partitions:
    merged = dict(held)
    for topic, indexes in added.items():
        merged[topic] = merged.get(topic, frozenset()) | indexes
    return merged


def includes(held: Partitions, wanted: Partitions) -> bool:
    return all(indexes <= held.get(topic, frozenset()) for topic, indexes in wanted.items())
