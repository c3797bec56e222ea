"""The rules with one of them taken away or bent. The simulation must notice every one."""

from dataclasses import replace

from millstream.replication import following
from millstream.replication.following import FetchPosition, Step
from millstream.replication.isr import IsrChange
from millstream.replication.leadership import Leadership
from tests.replication.simulation.log import SimulatedLog
from tests.replication.simulation.variant import REAL


def _cut_to_high_watermark(log: SimulatedLog) -> None:
    log.cut(log.high_watermark)
    log.epochs.truncate_end(log.next_offset)


def _ask_without_epoch(leader_id: int, leader_epoch: int, log: SimulatedLog) -> FetchPosition:
    return FetchPosition(leader_id, leader_epoch, log.next_offset, -1)


# Before KIP-101: a follower cuts its log to its own high watermark.
CUT_TO_HIGH_WATERMARK = replace(
    REAL, begin_following=_cut_to_high_watermark, next_fetch=_ask_without_epoch
)


class _NeverFrozen(Leadership):
    __slots__ = ()

    def high_watermark(self, current: int, own_offset: int) -> int:
        return max(current, self._lowest_end(own_offset))


# Before KIP-966: the last one in sync commits alone.
LAST_REPLICA_STANDING = replace(REAL, leadership=_NeverFrozen)


class _ShrinkEarly(Leadership):
    __slots__ = ()

    @property
    def maximal_isr(self) -> frozenset[int]:
        return frozenset(self.isr if self.pending is None else self.pending.isr)


SHRINK_EARLY = replace(REAL, leadership=_ShrinkEarly)


class _ExpandLate(Leadership):
    __slots__ = ()

    @property
    def maximal_isr(self) -> frozenset[int]:
        return frozenset(self.isr)


# Before KIP-497: a new member counts only when the leader has heard that it is one.
EXPAND_WITHOUT_MAXIMAL = replace(REAL, leadership=_ExpandLate)

SUSPICION_FORGOTTEN = replace(REAL, suspicion_is_sticky=False)


# A follower goes on claiming an epoch of which it has no record.
EPOCHS_NOT_TRIMMED = replace(
    REAL, begin_following=lambda log: None, cut_back=lambda log, offset: log.cut(offset)
)


def _take_any_answer(
    asked: FetchPosition, would_ask: object, answer: following.FetchAnswer, epochs: object
) -> Step:
    return following.take_answer(asked, asked, answer, epochs)  # type: ignore[arg-type]


LATE_ANSWERS_TAKEN = replace(REAL, take_answer=_take_any_answer)


class _AnyIncarnation(Leadership):
    __slots__ = ()

    def wanted_change(self, *, alive: object, **given: int) -> IsrChange | None:  # type: ignore[override]
        epochs = {r: f.broker_epoch for r, f in self._followers.items()}
        return Leadership.wanted_change(self, alive=epochs, **given)


# Before KIP-903: whoever fetched enough once may join, whoever it is by now.
ANY_INCARNATION_JOINS = replace(REAL, leadership=_AnyIncarnation, joining_is_checked=False)
