"""What a simulation is made of: the real rules, and places where a mutant takes one away."""

from collections.abc import Callable
from dataclasses import dataclass

from millstream.replication import following
from millstream.replication.following import FetchPosition, Step
from millstream.replication.leadership import Leadership
from tests.replication.simulation.log import SimulatedLog


def begin_following(log: SimulatedLog) -> None:
    following.begin_following(log.epochs, log.next_offset)


def next_fetch(leader_id: int, leader_epoch: int, log: SimulatedLog) -> FetchPosition:
    return following.next_fetch(leader_id, leader_epoch, log.epochs, log.next_offset)


def cut_back(log: SimulatedLog, offset: int) -> None:
    log.cut(offset)
    log.epochs.truncate_end(offset)


@dataclass(frozen=True)
class Variant:
    leadership: type[Leadership] = Leadership
    begin_following: Callable[[SimulatedLog], None] = begin_following
    next_fetch: Callable[[int, int, SimulatedLog], FetchPosition] = next_fetch
    take_answer: Callable[..., Step] = following.take_answer
    cut_back: Callable[[SimulatedLog, int], None] = cut_back
    suspicion_is_sticky: bool = True
    joining_is_checked: bool = True


REAL = Variant()
