"""The producers of all logs of a node have one bound, and each log its share of it."""

import gc
from dataclasses import dataclass

import pytest

from millstream.errors import KafkaCode, KafkaError
from millstream.storage.producer_budget import ProducerBudget


@dataclass(eq=False)
class Log:
    budget: ProducerBudget
    count: int = 0

    def __len__(self) -> int:
        return self.count

    def add(self) -> bool:
        """Whether a new producer is taken."""
        try:
            self.budget.admit(self)
        except KafkaError as error:
            return error.code is not KafkaCode.THROTTLING_QUOTA_EXCEEDED
        self.count += 1
        self.budget.note_taken(self)
        return True


def test_a_log_with_many_producers_takes_no_more_when_the_node_has_no_room() -> None:
    budget = ProducerBudget(1_000)
    log = Log(budget)
    taken = sum(log.add() for _ in range(3_000))
    assert taken == 1_000


def test_a_log_below_its_share_has_room_although_another_is_full() -> None:
    budget = ProducerBudget(1_000)
    hostile, other = Log(budget), Log(budget)
    assert other.add()
    while hostile.add():
        pass
    assert all(other.add() for _ in range(400))
    assert not hostile.add()


def test_the_bound_may_change_while_the_node_runs() -> None:
    budget = ProducerBudget(1_000)
    log = Log(budget)
    while log.add():
        pass
    budget.set_max(2_000)
    assert sum(log.add() for _ in range(3_000)) == 1_000


@pytest.mark.parametrize("logs", [1, 10, 100])
def test_however_many_logs_there_are_their_sum_has_a_bound(logs: int) -> None:
    budget = ProducerBudget(1_000)
    every = [Log(budget) for _ in range(logs)]
    for _ in range(1_500):
        for log in every:
            log.add()
    # Each log may fill its share while others had more than theirs, and counts are rounded.
    assert sum(log.count for log in every) <= 2 * 1_000 + logs


def test_producers_that_were_read_from_a_snapshot_count() -> None:
    budget = ProducerBudget(1_000)
    old = Log(budget, count=1_000)
    budget.note_loaded(old)
    assert not old.add()
    assert budget.is_crowded()


def test_there_is_room_again_when_producers_are_forgotten() -> None:
    budget = ProducerBudget(1_000)
    log = Log(budget)
    while log.add():
        pass
    log.count -= 100
    budget.note_forgotten(100)
    assert log.add()


def test_a_log_that_is_gone_holds_nothing() -> None:
    budget = ProducerBudget(1_000)
    gone, log = Log(budget), Log(budget)
    while gone.add():
        pass
    del gone
    gc.collect()
    assert sum(log.add() for _ in range(1_000)) >= 900


def test_a_log_that_is_gone_does_not_crowd_the_others() -> None:
    budget = ProducerBudget(1_000)
    gone = Log(budget)
    assert all(gone.add() for _ in range(900))
    assert budget.is_crowded()
    del gone
    gc.collect()
    log = Log(budget)
    assert all(log.add() for _ in range(50))
    assert not budget.is_crowded()


def test_the_room_of_a_log_that_is_gone_is_free_at_once() -> None:
    budget = ProducerBudget(10_000)
    gone, log = Log(budget, count=6_000), Log(budget, count=5_000)
    budget.note_loaded(gone)
    budget.note_loaded(log)
    assert not log.add()
    del gone
    # Another has come, so that there are as many as before.
    other = Log(budget)
    assert other.add()
    assert log.add()


def test_a_log_that_is_gone_crowds_nobody_from_then_on() -> None:
    budget = ProducerBudget(10_000)
    gone = Log(budget, count=6_000)
    budget.note_loaded(gone)
    assert budget.is_crowded()
    del gone
    assert not budget.is_crowded()


def test_logs_are_not_counted_again_for_each_refusal() -> None:
    class CountedLog(Log):
        counts = 0

        def __len__(self) -> int:
            self.counts += 1
            return super().__len__()

    budget = ProducerBudget(10_000)
    gone, log, other = (
        Log(budget, count=6_000),
        Log(budget, count=12_000),
        CountedLog(budget, count=1),
    )
    for each in (gone, log, other):
        budget.note_loaded(each)
    del gone, each
    assert not log.add()
    before = other.counts
    assert not any(log.add() for _ in range(90))
    assert other.counts == before
