"""Groups as a machine for the journal: their state, their records, and their deadlines."""

from collections.abc import Iterable
from typing import Final

from millstream.coordinators.codecs.changes import Change
from millstream.coordinators.codecs.table import decode, encode
from millstream.coordinators.decision import Decision, DecisionOf, Env
from millstream.coordinators.groups.requests import deadline_is_over, deadlines_after_replay
from millstream.coordinators.groups.state import ShardState
from millstream.coordinators.journal import Machine, Shard

GroupShard = Shard[ShardState, Change, Env]


def _names(state: ShardState) -> Iterable[str]:
    return state.groups


def _after_replay(state: ShardState, env: Env) -> DecisionOf[None, Change, Env]:
    return Decision(deadlines=deadlines_after_replay(state, env))


GROUPS: Final[Machine[ShardState, Change, Env]] = Machine(
    new_state=ShardState,
    encode=encode,
    decode=decode,
    apply=ShardState.apply,
    apply_pending=ShardState.apply_pending,
    end_transaction=ShardState.end_transaction,
    names=_names,
    deadline_is_over=deadline_is_over,
    after_replay=_after_replay,
)
