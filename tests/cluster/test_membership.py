"""Joining, leaving, being fenced, and the leader's voice: over a store in memory."""

import asyncio

import pytest

from millstream.cluster import joining, membership, znodes
from millstream.cluster import observer as observer_module
from millstream.cluster.membership import Outdated
from millstream.cluster.observer import Observer
from millstream.cluster.stores.store import (
    Check,
    CoordinationFailed,
    Create,
    Delete,
    Put,
    UnknownOutcome,
)
from millstream.errors import StartError
from millstream.model import TopicPartition
from tests.cluster.world import Node, World, run, until

WHERE = TopicPartition("t", 0)


def test_a_node_is_fenced_until_it_is_registered():
    async def scenario(world: World):
        node = Node(world, 1)
        world.nodes[1] = node
        await node.membership.join(is_suspect=False)
        assert node.membership.is_fenced
        assert node.membership.image.brokers == {}
        assert not node.membership.lease.is_valid()

    run(scenario)


def test_every_start_has_a_larger_epoch_and_all_nodes_see_who_lives():
    async def scenario(world: World):
        first, second = await world.start(1, 2)
        assert (first.told, second.told) == (["active 1"], ["active 1"])
        await until(lambda: set(first.membership.image.brokers) == {1, 2})
        assert first.membership.image.controller_id == 1
        assert second.membership.image.controller_id == 1
        second.die()
        await until(lambda: set(first.membership.image.brokers) == {1})
        (again,) = await world.start(2)
        assert again.membership.broker_epoch == 2
        await until(lambda: 2 in first.membership.image.brokers)
        assert first.membership.image.brokers[2].epoch == 2

    run(scenario)


def test_a_start_waits_until_the_controller_has_taken_its_predecessor_out_of_the_isr():
    async def scenario(world: World):
        await world.start(1, 2, 3)
        await world.make_topic((3, 1, 2))
        world.nodes[3].die()
        (again,) = await world.start(3)
        state = again.state()
        assert (state.leader, state.isr, state.leader_epoch) == (1, (1, 2), 1)
        assert again.membership.image.handled[3] == 2

    run(scenario)


def test_the_second_node_of_one_id_gives_up_and_says_who_has_it(monkeypatch):
    monkeypatch.setattr(joining, "_GRACE_SECONDS", 0.0)

    async def scenario(world: World):
        await world.start(1)
        twin = Node(world, 1)
        open_session = twin.membership._open_session

        async def short_session():
            store = await open_session()
            store.session_timeout_ms = 20
            return store

        twin.membership._open_session = short_session
        with pytest.raises(StartError, match="another node has the id 1"):
            await twin.start()
        assert not world.nodes[1].membership.is_fenced
        assert world.nodes[1].membership.broker_epoch == 1

    run(scenario)


def test_a_node_that_never_joined_can_leave():
    async def scenario(world: World):
        node = Node(world, 1)

        async def nobody_there():
            raise CoordinationFailed("no ZooKeeper answers")

        node.membership._open_session = nobody_there
        with pytest.raises(CoordinationFailed):
            await node.start()
        await node.membership.leave()

    run(scenario)


def test_another_clusters_directory_is_refused():
    async def scenario(world: World):
        await world.start(1)
        stranger = Node(world, 2)
        stranger.membership._cluster_id = "elsewhere"
        with pytest.raises(StartError, match="belongs to cluster elsewhere"):
            await stranger.start()

    run(scenario)


def test_a_directory_whose_cluster_zookeeper_has_lost_is_refused():
    async def scenario(world: World):
        stranger = Node(world, 2)
        stranger.membership._cluster_id = "lost"
        with pytest.raises(StartError, match="belongs to cluster lost"):
            await stranger.start()
        assert await world.outside.children("/") == []

    run(scenario)


def test_a_lost_session_fences_at_once_and_the_node_comes_back_as_another_incarnation():
    async def scenario(world: World):
        (node, _) = await world.start(1, 2)
        assert node.membership.lease.is_valid()
        node.sessions[-1].expire()
        assert node.told[-1] == "fenced: the ZooKeeper session has ended"
        assert node.membership.is_fenced
        assert node.membership.broker_epoch == -1
        assert not node.membership.lease.is_valid()
        await until(lambda: not node.membership.is_fenced)
        assert node.told[-1] == "active 2"
        assert node.membership.lease.is_valid()

    run(scenario)


def test_a_node_comes_back_though_something_unexpected_was_in_its_way(monkeypatch, caplog):
    """For example, all descriptors were in use by clients, whose connections close then."""
    monkeypatch.setattr(membership, "_RETRY_SECONDS", 0.01)

    async def scenario(world: World):
        (node,) = await world.start(1)
        open_session = node.membership._open_session
        failures = [OSError(24, "Too many open files"), RuntimeError("can't start new thread")]

        async def open_in_the_end():
            if failures:
                raise failures.pop()
            return await open_session()

        async def close():
            raise OSError(9, "Bad file descriptor")

        node.membership._open_session = open_in_the_end
        session = node.sessions[-1]
        session.close = close
        session.expire()
        await until(lambda: not node.membership.is_fenced)
        assert node.told[-1] == "active 2"
        assert "Too many open files" in caplog.text

    run(scenario)


def test_a_session_that_ends_while_its_node_registers_is_followed_by_one_other():
    async def scenario(world: World):
        (node,) = await world.start(1)
        read_incarnations = Observer.read_incarnations
        ended = []

        async def end_the_session_first(observer):
            if len(node.sessions) == 2 and not ended and await is_registered():
                ended.append(True)
                node.sessions[-1].expire()
            await read_incarnations(observer)

        async def is_registered():
            return await world.outside.exists("/brokers/ids/1")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Observer, "read_incarnations", end_the_session_first)
            node.sessions[-1].expire()
            await until(lambda: len(node.sessions) >= 3 and not node.membership.is_fenced)
        assert len(node.sessions) == 3
        assert node.told[-1] == "active 3"

    run(scenario)


def test_a_node_whose_registration_is_taken_away_registers_again():
    async def scenario(world: World):
        (node,) = await world.start(1)
        node.sessions[-1].session_timeout_ms = 60
        await world.outside.commit([Delete("/brokers/ids/1")])
        await until(lambda: node.told[-1] == "active 2")

    run(scenario)


def test_a_zookeeper_that_has_gone_back_in_time_is_refused(caplog):
    async def scenario(world: World):
        (node,) = await world.start(1)
        await world.outside.commit(
            [Delete("/brokers/epochs/1"), Create("/brokers/epochs/1", b'{"is_suspect":false}')]
        )
        node.sessions[-1].expire()
        await until(lambda: "gone back in time" in caplog.text)
        assert node.membership.is_fenced

    run(scenario)


def test_a_node_whose_epoch_is_taken_is_fenced_though_its_session_lives():
    async def scenario(world: World):
        (node, _) = await world.start(1, 2)
        data = znodes.encode_incarnation("controller", is_suspect=False)
        await world.outside.commit([Put("/brokers/epochs/1", data, 1)])
        await until(lambda: node.told[-1].startswith("fenced"))
        await until(lambda: not node.membership.is_fenced)
        assert node.membership.broker_epoch == 3

    run(scenario)


def test_the_lease_ends_two_thirds_of_a_session_after_the_question_was_sent():
    async def scenario(world: World):
        (node,) = await world.start(1)
        world.clock.seconds += 3.9
        assert node.membership.lease.is_valid()
        world.clock.seconds += 0.2
        assert not node.membership.lease.is_valid()
        await node.membership._beat()
        assert node.membership.lease.is_valid()

    run(scenario)


def test_a_leader_changes_its_isr_and_everybody_sees_it():
    async def scenario(world: World):
        nodes = await world.start(1, 2, 3)
        await world.make_topic((1, 2, 3))
        await until(lambda: all("t" in node.membership.image.topics for node in nodes))
        leader = nodes[0]
        before = leader.state()
        after = await leader.membership.change_isr(WHERE, before, (1,), {})
        assert (after.isr, after.elr) == ((1,), (2, 3))
        assert after.leader_epoch == before.leader_epoch
        assert after.version == before.version + 1
        assert leader.state() == after
        await until(lambda: all(node.state() == after for node in nodes))
        grown = await leader.membership.change_isr(WHERE, after, (1, 2), {2: 1})
        assert (grown.isr, grown.elr) == ((1, 2), ())
        with pytest.raises(Outdated):
            await leader.membership.change_isr(WHERE, before, (1, 2, 3), {3: 1})

    run(scenario)


def test_a_replica_joins_an_isr_only_as_the_incarnation_that_fetched():
    async def scenario(world: World):
        nodes = await world.start(1, 2, 3)
        await world.make_topic((1, 2, 3))
        await until(lambda: all("t" in node.membership.image.topics for node in nodes))
        leader = nodes[0]
        shrunk = await leader.membership.change_isr(WHERE, leader.state(), (1, 2), {})
        world.nodes[3].die()
        await world.start(3)
        with pytest.raises(Outdated):
            await leader.membership.change_isr(WHERE, shrunk, (1, 2, 3), {3: 1})
        grown = await leader.membership.change_isr(WHERE, leader.state(), (1, 2, 3), {3: 2})
        assert grown.isr == (1, 2, 3)

    run(scenario)


def test_a_zombie_leader_writes_nothing():
    async def scenario(world: World):
        nodes = await world.start(1, 2, 3)
        await world.make_topic((1, 2, 3))
        await until(lambda: all("t" in node.membership.image.topics for node in nodes))
        zombie = nodes[0].membership
        state = nodes[0].state()
        data = znodes.encode_incarnation("controller", is_suspect=False)
        zombie._image_changed = lambda change: None
        await world.outside.commit([Put("/brokers/epochs/1", data, 1)])
        with pytest.raises(Outdated):
            await zombie.change_isr(WHERE, state, (1, 2), {})

    run(scenario)


def test_a_part_of_a_node_that_fails_is_told_again_and_hides_nothing_from_the_next(monkeypatch):
    monkeypatch.setattr(observer_module, "_ERROR_SECONDS", 0)

    async def scenario(world: World):
        [node] = await world.start(1)
        behind = Node(world, 1)
        node.membership.subscribe(behind)
        told = []

        def fail_once(change):
            told.append(change.created)
            if told.count(("t",)) == 1:
                raise ZeroDivisionError

        node.image_changed = fail_once
        await world.make_topic((1,))
        await until(lambda: told.count(("t",)) == 2)
        assert ("t",) in [change.created for change in behind.changes]

    run(scenario)


def test_a_node_comes_back_though_a_part_of_it_fails_when_it_is_fenced():
    async def scenario(world: World):
        [node] = await world.start(1)
        behind = Node(world, 1)
        node.membership.subscribe(behind)

        def fail(reason):
            raise ZeroDivisionError

        node.fenced = fail
        node.sessions[-1].expire()
        await until(lambda: node.membership.is_fenced)
        await until(lambda: not node.membership.is_fenced)
        assert behind.told[0].startswith("fenced")

    run(scenario)


@pytest.mark.parametrize("is_written", [True, False])
def test_a_lost_answer_is_read_and_not_sent_again(is_written):
    async def scenario(world: World):
        nodes = await world.start(1, 2, 3)
        await world.make_topic((1, 2, 3))
        await until(lambda: "t" in nodes[0].membership.image.topics)
        leader = nodes[0]
        store = leader.sessions[-1]
        commit = store.commit
        asked = []

        async def lose_the_answer(operations):
            asked.append(operations)
            if is_written:
                await commit(operations)
            raise UnknownOutcome("no answer")

        store.commit = lose_the_answer
        change = leader.membership.change_isr(WHERE, leader.state(), (1, 2), {})
        if is_written:
            assert (await change).isr == (1, 2)
        else:
            with pytest.raises(Outdated):
                await change
        assert len(asked) == 1
        assert Check("/brokers/epochs/1", 1) in asked[0]
        store.commit = commit

    run(scenario)


def test_a_change_without_a_connection_was_not_written_and_may_be_tried_again(monkeypatch):
    """Otherwise it would count as under way for the rest of the leadership, because the session
    goes on when the connection is back."""

    async def scenario(world: World):
        nodes = await world.start(1, 2, 3)
        await world.make_topic((1, 2, 3))
        await until(lambda: "t" in nodes[0].membership.image.topics)
        leader = nodes[0]
        store = leader.sessions[-1]
        commit = store.commit

        async def no_connection(operations):
            raise CoordinationFailed("no connection to ZooKeeper")

        monkeypatch.setattr(membership, "_RETRY_SECONDS_MAX", 0.01)
        store.commit = no_connection
        with pytest.raises(Outdated):
            await leader.membership.change_isr(WHERE, leader.state(), (1, 2), {})
        store.commit = commit
        changed = await leader.membership.change_isr(WHERE, leader.state(), (1, 2), {})
        assert changed.isr == (1, 2)

    run(scenario)


def test_a_node_that_stops_hands_over_first_and_keeps_what_nobody_else_has():
    async def scenario(world: World):
        nodes = await world.start(1, 2, 3)
        await world.make_topic((1, 2, 3), (2, 1, 3), (1,))
        await until(lambda: all("t" in node.membership.image.topics for node in nodes))
        assert await nodes[0].membership.hand_over(seconds_max=5)
        assert (nodes[0].state(0).leader, nodes[0].state(0).isr) == (2, (2, 3))
        assert nodes[0].state(1).isr == (2, 3)
        assert (nodes[0].state(2).leader, nodes[0].state(2).isr) == (1, (1,))
        await nodes[0].membership.leave()
        await until(lambda: nodes[1].state(2).leader == -1)
        assert (nodes[1].state(2).isr, nodes[1].state(2).elr) == ((), (1,))

    run(scenario)


def test_nodes_that_all_stop_wait_for_nobody():
    async def scenario(world: World):
        nodes = await world.start(1, 2, 3)
        await world.make_topic((1, 2, 3))
        await until(lambda: all("t" in node.membership.image.topics for node in nodes))
        async with asyncio.timeout(30):
            done = await asyncio.gather(
                *(node.membership.hand_over(seconds_max=60) for node in nodes)
            )
        assert done == [True, True, True]

    run(scenario)


def test_a_start_that_may_have_lost_data_is_remembered_over_the_next_start():
    async def scenario(world: World):
        await world.start(1)
        world.nodes[1].die()
        suspect = Node(world, 1)
        store = world.tree.open_session()
        data = znodes.encode_incarnation("cut short", is_suspect=True)
        await store.commit([Put("/brokers/epochs/1", data, 1)])
        await suspect.membership.join(is_suspect=False)
        assert suspect.membership.image.incarnations[1].is_suspect
        await suspect.membership.leave()

    run(scenario)


def test_a_half_made_topic_is_nobodys_and_the_next_controller_removes_it():
    async def scenario(world: World):
        (first, second) = await world.start(1, 2)
        await world.outside.commit(
            [
                Create("/brokers/topics/half"),
                Create("/brokers/topics/half/partitions"),
                Create("/brokers/topics/half/partitions/0"),
                Create("/config/topics/half", znodes.encode_config({})),
            ]
        )
        await asyncio.sleep(0)
        assert "half" not in second.membership.image.topics
        first.die()
        await until(lambda: second.membership.is_controller)
        await until(lambda: "/brokers/topics/half" not in world.tree._entries)
        assert not await world.outside.exists("/config/topics/half")

    run(scenario)
