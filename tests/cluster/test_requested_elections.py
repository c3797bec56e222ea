"""Elections and reassignments on request, over a store in memory."""

import pytest

from millstream.cluster.requested_elections import Elections
from millstream.errors import KafkaCode, KafkaError
from millstream.model import TopicPartition
from tests.cluster.world import World, run, until

WHERE = TopicPartition("t", 0)


async def nodes_with_a_topic(world: World, *assignments, nodes=(1, 2, 3)):
    started = await world.start(*nodes)
    await world.make_topic(*(assignments or [(1, 2, 3)]))
    await until(lambda: all("t" in node.membership.image.topics for node in started))
    await until(lambda: all(len(n.membership.image.brokers) == len(nodes) for n in started))
    return started


async def code_of(change) -> KafkaCode:
    with pytest.raises(KafkaError) as refused:
        await change
    return refused.value.code


def test_the_preferred_replica_leads_again_after_it_was_away():
    async def scenario(world: World):
        first, second, _ = await nodes_with_a_topic(world)
        leaders = Elections(second.membership)
        assert await code_of(leaders.elect_preferred(WHERE)) is KafkaCode.ELECTION_NOT_NEEDED
        first.die()
        await until(lambda: second.state().leader == 2)
        unavailable = await code_of(leaders.elect_preferred(WHERE))
        assert unavailable is KafkaCode.PREFERRED_LEADER_NOT_AVAILABLE
        await world.start(1)
        await until(lambda: 1 in second.membership.image.brokers)
        isr = (1, 2, 3)
        await second.membership.change_isr(WHERE, second.state(), isr, {1: 2, 3: 1})
        await leaders.elect_preferred(WHERE)
        assert (second.state().leader, second.state().leader_epoch) == (1, 2)
        missing = await code_of(leaders.elect_preferred(TopicPartition("t", 7)))
        assert missing is KafkaCode.UNKNOWN_TOPIC_OR_PARTITION

    run(scenario)


def test_only_without_a_leader_may_a_person_elect_whoever_is_there(caplog):
    async def scenario(world: World):
        _, second, third = await nodes_with_a_topic(world, (3, 2))
        leaders = Elections(second.membership)
        assert await code_of(leaders.elect_uncleanly(WHERE)) is KafkaCode.ELECTION_NOT_NEEDED
        await third.membership.change_isr(WHERE, third.state(), (3,), {})
        world.min_isr = 1
        third.die()
        await until(lambda: second.state().leader in (-1, 2))
        if second.state().leader == -1:
            await leaders.elect_uncleanly(WHERE)
            assert "t-0: unclean election: node 2 leads" in caplog.text
        await until(lambda: second.state().leader == 2)

    run(scenario)


def test_a_reassignment_begins_by_request_and_ends_by_the_controller():
    async def scenario(world: World):
        first, second, third = await nodes_with_a_topic(world, (1, 2))
        leaders = Elections(third.membership)
        await leaders.reassign(WHERE, (3, 2))
        state = third.state()
        assert (state.replicas, state.adding, state.removing) == ((3, 2, 1), (3,), (1,))
        (under_way,) = leaders.reassignments()
        assert under_way.where == WHERE
        await until(lambda: first.state().adding == (3,))
        await first.membership.change_isr(WHERE, first.state(), (1, 2, 3), {3: 1})
        await until(lambda: third.state().replicas == (3, 2))
        assert (third.state().isr, third.state().leader) == ((3, 2), 3)
        assert leaders.reassignments() == []
        await until(lambda: second.state().replicas == (3, 2))

    run(scenario)


def test_a_reassignment_is_called_off():
    async def scenario(world: World):
        first, _, _ = await nodes_with_a_topic(world, (1, 2))
        leaders = Elections(first.membership)
        nothing = await code_of(leaders.cancel(WHERE))
        assert nothing is KafkaCode.NO_REASSIGNMENT_IN_PROGRESS
        await leaders.reassign(WHERE, (3,))
        await leaders.cancel(WHERE)
        assert set(first.state().replicas) == {1, 2}
        assert first.state().adding == ()
        for wrong in ((), (1, 1), (9,)):
            code = await code_of(leaders.reassign(WHERE, wrong))
            assert code is KafkaCode.INVALID_REPLICA_ASSIGNMENT

    run(scenario)


def test_a_move_that_cannot_be_called_off_says_what_to_do():
    async def scenario(world: World):
        first, _, third, _ = await nodes_with_a_topic(world, (1, 2), nodes=(1, 2, 3, 4))
        leaders = Elections(third.membership)
        await leaders.reassign(WHERE, (3, 4))
        await until(lambda: first.state().adding == (3, 4))
        await first.membership.change_isr(WHERE, first.state(), (1, 3), {3: 1})
        first.die()
        await until(lambda: (third.state().leader, third.state().isr) == (3, (3,)))
        with pytest.raises(KafkaError, match="start one of the nodes 1, 2 and cancel again"):
            await leaders.cancel(WHERE)

    run(scenario)
