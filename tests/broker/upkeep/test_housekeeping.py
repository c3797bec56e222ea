"""The rounds go on, whatever one of them meets."""

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast

import pytest

from millstream.broker.node.state import NodeState
from millstream.broker.upkeep import housekeeping
from millstream.errors import LogDirFailed, NoSpace


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
    is_full: bool
    rounds: int = 0

    def apply_retention(self, now_ms: int) -> list[str]:
        self.rounds += 1
        if self.is_full:
            raise NoSpace("full")
        return ["a segment"]


@dataclass
class FakePartition:
    log: FakeLog
    offline_reason: str | None = None
    topic_partition: str = "t-0"


@dataclass
class FakeNode:
    partitions: list[FakePartition]
    checkpoints: int = 0
    clock: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(now_ms=lambda: 0))

    @property
    def disk(self) -> "FakeNode":
        return self

    async def checkpoint(self) -> None:
        self.checkpoints += 1


def test_a_partition_without_room_does_not_keep_others_from_making_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def nothing_consumed(node: object, find_commits: object) -> bool:
        return False

    monkeypatch.setattr(housekeeping, "delete_consumed", nothing_consumed)
    node = FakeNode([FakePartition(FakeLog(is_full=True)), FakePartition(FakeLog(False))])
    asyncio.run(housekeeping.apply_retention(cast(NodeState, node), lambda: None))
    assert [partition.log.rounds for partition in node.partitions] == [1, 1]
    assert node.checkpoints == 1
