"""Proposals of another in-sync set: made once, taken back or kept as the store answers."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from millstream.clock import SystemClock
from millstream.cluster.stores.store import CoordinationFailed
from millstream.model import TopicPartition
from millstream.replication.isr import IsrChange
from millstream.replication.isr_proposer import IsrProposer, NotWritten
from millstream.replication.replicated import ReplicatedPartition
from millstream.replication.role import Role
from tests.replication.test_replicated import BROKER_EPOCH, ask, following, leading, produce, role

Write = Callable[[TopicPartition, IsrChange], Coroutine[Any, Any, Role]]


def keeper(write: Write, *, has_lease: bool = True) -> IsrProposer:
    return IsrProposer(
        write,
        alive=lambda: {1: 1, 2: BROKER_EPOCH, 3: BROKER_EPOCH},
        has_lease=lambda: has_lease,
        lag_ms_max=lambda: 10**12,
        clock=SystemClock(),
    )


def leader_with_newcomer() -> ReplicatedPartition:
    """2 is out of sync and has everything."""
    leader = leading(isr=(1, 3))
    ask(leader, following(2, isr=(1, 3)), broker_id=2)
    return leader


def test_a_proposal_that_is_written_is_the_new_state() -> None:
    async def scenario() -> None:
        leader = leader_with_newcomer()
        written: list[IsrChange] = []

        async def write(where: TopicPartition, change: IsrChange) -> Role:
            written.append(change)
            return role(isr=change.isr, version=change.version + 1)

        isr = keeper(write)
        isr.look_at(leader)
        # Under way: another look proposes nothing.
        isr.look_at(leader)
        await asyncio.gather(*isr._tasks)
        assert written == [IsrChange((1, 2, 3), 1, ((2, BROKER_EPOCH),))]
        assert leader.leadership is not None
        assert leader.leadership.isr == (1, 2, 3)
        assert leader.leadership.pending is None

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("problem", "is_pending"),
    [(NotWritten("another was faster"), False), (CoordinationFailed("who knows"), True)],
)
def test_a_proposal_counts_until_it_is_known_not_to_be_written(
    problem: Exception, is_pending: bool
) -> None:
    async def scenario() -> None:
        leader = leader_with_newcomer()

        async def write(where: TopicPartition, change: IsrChange) -> Role:
            raise problem

        isr = keeper(write)
        isr.look_at(leader)
        await asyncio.gather(*isr._tasks)
        assert leader.leadership is not None
        assert leader.leadership.isr == (1, 3)
        assert (leader.leadership.pending is not None) is is_pending

    asyncio.run(scenario())


def test_what_waited_for_a_newcomer_is_committed_when_it_does_not_come() -> None:
    """It died before it was in sync: nothing else would move the high watermark, because the leader
    is alone and hears no follower."""

    async def scenario() -> None:
        leader = leading(isr=(1,), min_isr=1)
        assert produce(leader) == 1
        ask(leader, newcomer := following(2, isr=(1,), min_isr=1))
        ask(leader, newcomer)

        async def write(where: TopicPartition, change: IsrChange) -> Role:
            assert change.isr == (1, 2)
            assert produce(leader) == 2
            waiting.append(leader.require_leader().wait_committed(2))
            raise NotWritten("another incarnation of 2")

        waiting: list[asyncio.Future[None] | None] = []
        isr = keeper(write)
        isr.look_at(leader)
        await asyncio.gather(*isr._tasks)
        assert leader.high_watermark == 2
        [answer] = waiting
        assert answer is not None
        assert answer.done()

    asyncio.run(scenario())


def test_without_the_lease_nothing_is_proposed() -> None:
    async def scenario() -> None:
        leader = leader_with_newcomer()

        async def write(where: TopicPartition, change: IsrChange) -> Role:
            raise AssertionError("never")

        keeper(write, has_lease=False).look_at(leader)
        assert leader.leadership is not None
        assert leader.leadership.pending is None

    asyncio.run(scenario())


def test_an_answer_to_a_leadership_that_is_over_changes_nothing() -> None:
    async def scenario() -> None:
        leader = leader_with_newcomer()
        may_go_on = asyncio.Event()

        async def write(where: TopicPartition, change: IsrChange) -> Role:
            await may_go_on.wait()
            return role(isr=change.isr, version=9)

        isr = keeper(write)
        isr.look_at(leader)
        leader.apply(role(1, epoch=2, isr=(1, 3), version=5), now_ms=0)
        may_go_on.set()
        await asyncio.gather(*isr._tasks)
        assert leader.leadership is not None
        assert leader.leadership.isr == (1, 3)
        assert leader.role.version == 5

    asyncio.run(scenario())
