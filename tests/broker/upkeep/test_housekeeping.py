"""The rounds go on, whatever one of them meets."""

import asyncio
import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from types import SimpleNamespace
from typing import cast

import pytest

from millstream.broker.node.state import NodeState
from millstream.broker.upkeep import housekeeping
from millstream.errors import LogDirFailed, NoSpace
from millstream.model import TopicPartition
from millstream.storage.values import CorruptLog


@pytest.mark.parametrize(
    "problem", [NoSpace("full"), OSError("no"), LogDirFailed("gone"), ZeroDivisionError("bug")]
)
def test_a_round_that_fails_is_followed_by_the_next(problem: Exception) -> None:
    async def scenario() -> list[str]:
        rounds: list[int] = []
        failures: list[str] = []
        second = asyncio.Event()

        async def step() -> None:
            rounds.append(1)
            if len(rounds) == 1:
                raise problem
            second.set()

        task = asyncio.create_task(housekeeping._every(lambda: 0, step, failures.append))
        await asyncio.wait_for(second.wait(), 10)
        task.cancel()
        return failures

    assert asyncio.run(scenario()) == (["gone"] if isinstance(problem, LogDirFailed) else [])


@dataclass
class FakeLog:
    problem: Exception | None = None
    rounds_ms: list[int] = field(default_factory=list)

    def apply_retention(self, now_ms: int) -> list[str]:
        self.rounds_ms.append(now_ms)
        if self.problem is not None:
            raise self.problem
        return ["a segment"]


@dataclass
class FakePartition:
    log: FakeLog
    topic_partition: TopicPartition
    offline_reason: str | None = None


class FakeNode:
    """Every look at its clock takes a millisecond."""

    def __init__(self, *problems: Exception | None) -> None:
        self.partitions = [
            FakePartition(FakeLog(problem), TopicPartition("t", index))
            for index, problem in enumerate(problems)
        ]
        self.checkpoints = 0
        self.clock = SimpleNamespace(now_ms=count().__next__)

    @property
    def disk(self) -> "FakeNode":
        return self

    async def checkpoint(self) -> None:
        self.checkpoints += 1


Logged = dict[TopicPartition, str]


@pytest.fixture
def retention(monkeypatch: pytest.MonkeyPatch) -> Callable[[FakeNode, Logged], None]:
    async def nothing_consumed(node: object, find_commits: object) -> bool:
        return False

    monkeypatch.setattr(housekeeping, "delete_consumed", nothing_consumed)

    def run(node: FakeNode, logged: Logged) -> None:
        asyncio.run(housekeeping.apply_retention(cast(NodeState, node), lambda: None, logged))

    return run


@pytest.mark.parametrize(
    "problem", [NoSpace("full"), CorruptLog("a bad batch"), OSError(errno.EIO, "cannot read")]
)
def test_a_partition_with_a_problem_does_not_keep_others_from_making_room(
    problem: Exception,
    retention: Callable[[FakeNode, Logged], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    node, logged = FakeNode(problem, None), Logged()
    retention(node, logged)
    assert [len(partition.log.rounds_ms) for partition in node.partitions] == [1, 1]
    assert node.checkpoints == 1
    retention(node, logged)
    assert caplog.text.count("retention of t-0") == 1
    node.partitions[0].log.problem = None
    retention(node, logged)
    assert not logged
    node.partitions[0].log.problem = problem
    retention(node, logged)
    assert caplog.text.count("retention of t-0") == 2
    assert [len(partition.log.rounds_ms) for partition in node.partitions] == [4, 4]


def test_a_failed_disk_ends_the_round(retention: Callable[[FakeNode, Logged], None]) -> None:
    with pytest.raises(LogDirFailed):
        retention(FakeNode(LogDirFailed("gone"), None), {})


def test_each_partition_is_measured_by_the_time_of_its_turn(
    retention: Callable[[FakeNode, Logged], None],
) -> None:
    node = FakeNode(None, None, None)
    retention(node, {})
    assert [partition.log.rounds_ms for partition in node.partitions] == [[0], [1], [2]]
