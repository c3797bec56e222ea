"""The rules with one of them taken away or bent, one at a time. The simulation must notice each.

A mutant replaces named functions of the product while it runs; `seed` is one that catches it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from millstream.broker.coordination import transactions as coordination
from millstream.broker.coordination.shards import Shards
from millstream.broker.coordination.transactions import TransactionCoordinator
from millstream.broker.requests import verification
from millstream.cluster import election
from millstream.coordinators.consumer import reconcile
from millstream.coordinators.decision import ProducerEpoch
from millstream.coordinators.groups.machine import GROUPS
from millstream.coordinators.groups.state import ShardState
from millstream.coordinators.journal import Shard
from millstream.coordinators.transactions import decisions
from millstream.coordinators.transactions.decisions import Decision
from millstream.coordinators.transactions.machine import TRANSACTIONS
from millstream.coordinators.transactions.state import ProducerReply
from millstream.replication.leadership import Leadership
from millstream.storage.producers import ProducerStates
from tests.simulation import node


@dataclass(frozen=True)
class Mutant:
    name: str
    seed: int
    # (where, the name of a function, what it is replaced by)
    patches: tuple[tuple[Any, str, Any], ...]

    @contextmanager
    def applied(self) -> Iterator[None]:
        kept = [(where, name, where.__dict__[name]) for where, name, _ in self.patches]
        for where, name, replacement in self.patches:
            setattr(where, name, replacement)
        try:
            yield
        finally:
            for where, name, original in kept:
                setattr(where, name, original)


def _do_nothing(*given: Any, **named: Any) -> None:
    return None


async def _do_not_wait(*given: Any) -> None:
    return None


# -- the journal ----------------------------------------------------------------------


def _act_at_once(self: Any) -> None:
    due, self._due_when_committed = self._due_when_committed, []
    self._act(due)


_replay = Shard._replay


def _replay_without_markers(self: Any, state: Any, batch: Any) -> None:
    if batch.marker is None:
        _replay(self, state, batch)


_deadline_is_over = Shard._deadline_is_over


def _try_once(self: Any, key: Any) -> bool:
    _deadline_is_over(self, key)
    return True


def _apply_at_once(state: ShardState, change: Any, producer_id: int) -> None:
    state.apply(change)


# -- transactions ---------------------------------------------------------------------


async def _complete_now(
    self: Any, shard: Any, transactional_id: str, prepared: Any, waits: Any
) -> None:
    self._complete(shard, transactional_id, prepared)


def _same_epoch(transaction: Any, request: Any, env: Any) -> Any:
    stored = transaction.stored
    return Decision(ProducerReply(stored.producer_id, stored.producer_epoch))


_fence_and_abort = decisions.fence_and_abort


def _abort_without_fencing(transaction: Any, env: Any, decision: Any) -> None:
    epoch = transaction.stored.producer_epoch
    _fence_and_abort(transaction, env, decision)
    last = decision.records[-1]
    decision.records[-1] = replace(last, value=replace(last.value, producer_epoch=epoch))


def _find_any(state: Any, transactional_id: str, producer: ProducerEpoch) -> Any:
    return state.transactions[transactional_id]


def _end_of_anyone(transaction: Any, request: Any) -> bool:
    return False


def _check_no_sequence(self: Any, batch: Any) -> None:
    self.check_epoch(batch.producer_id, batch.producer_epoch)


# -- groups ---------------------------------------------------------------------------


def _never_owned(*given: Any) -> Any:
    *others, _owned_epoch, reported = given
    return _next_step(*others, lambda topic_id, partition: reconcile.UNOWNED, reported)


_next_step = reconcile._next_step


# -- replication ----------------------------------------------------------------------


def _lead_anyhow(state: Any, nodes: Any) -> Any:
    if state.leader in state.isr and state.leader in nodes.live:
        return state
    for replica in state.replicas:
        if replica in nodes.live:
            return election._led_by(election.with_isr(state, (replica,)), replica)
    return state if state.leader < 0 else election._led_by(state, -1)


def _never_frozen(self: Any, current: int, own_offset: int) -> int:
    return max(current, self._lowest_end(own_offset))


def _shrink_early(self: Any) -> frozenset[int]:
    return frozenset(self.isr if self.pending is None else self.pending.isr)


def _as_far_as_the_leader(self: Any, current: int, own_offset: int) -> int:
    return max(current, own_offset) if self.has_enough_in_sync else current


MUTANTS = (
    Mutant("a reply before it is committed", 0, ((Shard, "_wait", _do_nothing),)),
    Mutant(
        "a replay of what is not all committed", 1, ((Shards, "_until_readable", _do_not_wait),)
    ),
    Mutant(
        "a decision that was not committed is forgotten",
        5,
        ((Shard, "_not_committed", _do_nothing),),
    ),
    Mutant(
        "markers before the decision is committed",
        256,
        ((Shard, "_act_when_committed", _act_at_once),),
    ),
    Mutant(
        "a deadline that could not be acted upon is forgotten",
        5231,
        ((Shard, "_deadline_is_over", _try_once),),
    ),
    Mutant("a replay without markers", 8, ((Shard, "_replay", _replay_without_markers),)),
    Mutant(
        "offsets of an open transaction count",
        1,
        ((node, "GROUPS", replace(GROUPS, apply_pending=_apply_at_once)),),
    ),
    Mutant(
        "completed before the markers are committed",
        3,
        ((TransactionCoordinator, "_complete_later", _complete_now),),
    ),
    Mutant(
        "decided transactions are not carried out after a replay",
        0,
        (
            (
                coordination,
                "TRANSACTIONS",
                replace(TRANSACTIONS, after_replay=lambda state, env: Decision()),
            ),
        ),
    ),
    Mutant("a new owner gets the same epoch", 0, ((decisions, "_next_epoch", _same_epoch),)),
    Mutant("an abort does not fence", 1, ((decisions, "fence_and_abort", _abort_without_fencing),)),
    Mutant(
        "a fenced producer may go on",
        1,
        ((decisions, "find", _find_any), (decisions, "_check_ender", _end_of_anyone)),
    ),
    Mutant(
        "sequence numbers are not compared", 0, ((ProducerStates, "check", _check_no_sequence),)
    ),
    Mutant(
        "first writes are not verified", 0, ((verification, "check_produce", lambda *given: {}),)
    ),
    Mutant("partitions that another member owns", 0, ((reconcile, "_next_step", _never_owned),)),
    Mutant("any live replica leads", 0, ((election, "_with_leader", _lead_anyhow),)),
    Mutant(
        "the last replica in sync commits alone",
        0,
        ((Leadership, "high_watermark", _never_frozen),),
    ),
    Mutant(
        "the leader alone decides what is committed",
        0,
        ((Leadership, "high_watermark", _as_far_as_the_leader),),
    ),
    Mutant(
        "the ISR shrinks before it is written",
        6,
        ((Leadership, "maximal_isr", property(_shrink_early)),),
    ),
)
