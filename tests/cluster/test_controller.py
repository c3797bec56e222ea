"""The controller's work, over a store in memory."""

import asyncio
import json
from dataclasses import replace

from millstream.cluster import controller as controller_module
from millstream.cluster import znodes
from millstream.cluster.leader_balance import LeaderBalance
from millstream.cluster.observer import ImageChange
from millstream.cluster.requested_elections import Elections
from millstream.cluster.stores.store import Check, Create, Delete, Put, UnknownOutcome
from millstream.model import TopicPartition
from tests.cluster.world import World, run, until


async def three_with_a_topic(world: World, *assignments):
    nodes = await world.start(1, 2, 3)
    await world.make_topic(*(assignments or [(1, 2, 3)]))
    await until(lambda: all("t" in node.membership.image.topics for node in nodes))
    return nodes


def test_a_dead_leader_is_replaced_at_every_node():
    async def scenario(world: World):
        first, second, third = await three_with_a_topic(world, (2, 3, 1), (3, 1, 2))
        second.die()
        await until(lambda: third.state(0).leader == 3)
        await until(lambda: first.state(1).isr == (3, 1))
        assert first.state(0).isr == (3, 1)
        assert first.state(0).leader_epoch == 1
        assert first.state(1).leader_epoch == 0

    run(scenario)


def test_when_the_controller_dies_another_one_does_its_work():
    async def scenario(world: World):
        first, second, third = await three_with_a_topic(world)
        assert first.membership.is_controller
        first.die()
        await until(lambda: second.membership.is_controller or third.membership.is_controller)
        await until(lambda: second.state().leader == 2 and third.state().leader == 2)
        assert second.state().isr == (2, 3)
        await until(lambda: second.membership.image.controller_id in (2, 3))

    run(scenario)


def test_a_deposed_controller_writes_nothing_and_resigns():
    async def scenario(world: World):
        first, second, _ = await three_with_a_topic(world)
        # Another one has taken over while the first one slept.
        data = znodes.encode_controller(9, "another session", 0)
        await world.outside.commit(
            [
                Delete(znodes.CONTROLLER),
                Create(znodes.CONTROLLER, data, is_ephemeral=True),
                Put(znodes.CONTROLLER_EPOCH, b"7"),
            ]
        )
        second.die()
        await until(lambda: not first.membership.is_controller)
        assert first.state().isr == (1, 2, 3)

    run(scenario)


def dead_epochs(world: World, *broker_ids: int) -> list[int]:
    """Of nodes that have a session whose epoch is over."""
    image = world.nodes[1].membership.image
    return [each for each in broker_ids if each not in image.brokers]


def test_concurrent_fences_end_at_most_a_minority():
    async def scenario(world: World):
        nodes = await world.start(1, 2, 3, 4, 5)
        first = nodes[0].membership
        await until(lambda: len(first.image.brokers) == 5)
        epochs = {each: first.image.brokers[each].epoch for each in (2, 3, 4, 5)}
        store = nodes[0].sessions[-1]
        commit = store.commit

        async def commit_later(operations):
            await asyncio.sleep(0.01)
            return await commit(operations)

        store.commit = commit_later
        fences = [first._controller.fence(each, epoch) for each, epoch in epochs.items()]
        await asyncio.gather(*fences)
        assert len(dead_epochs(world, 2, 3, 4, 5)) == 2

    run(scenario)


def test_a_controller_is_not_deposed_when_a_minority_is_dead_already():
    async def scenario(world: World):
        _, second, _ = await world.start(1, 2, 3)
        await until(lambda: len(second.membership.image.brokers) == 3)
        # Node 3 still has its session, but another epoch of it has begun.
        data = znodes.encode_incarnation("another", is_suspect=False)
        await world.outside.commit([Put(znodes.epoch_path(3), data)])
        await until(lambda: 3 not in second.membership.image.brokers)
        version = second.membership.image.controller_epoch_version
        await second.membership._controller.depose(
            1, 1, epoch_version=version, broker_epoch=second.membership.broker_epoch
        )
        assert not second.membership.is_controller

    run(scenario)


def test_every_write_of_the_controller_checks_its_epoch_and_those_it_trusts():
    async def scenario(world: World):
        first, second, _ = await three_with_a_topic(world)
        written = []
        store = first.sessions[-1]
        commit = store.commit

        async def watched(operations):
            written.append(operations)
            return await commit(operations)

        store.commit = watched
        second.die()
        await until(lambda: first.state().isr == (1, 3))
        checks = {(op.path, op.version) for op in written[0] if not isinstance(op, Put)}
        assert checks == {
            (znodes.CONTROLLER_EPOCH, 1),
            ("/brokers/epochs/1", 1),
            ("/brokers/epochs/3", 1),
        }

    run(scenario)


def test_a_leader_that_was_faster_is_read_and_decided_on_again():
    async def scenario(world: World):
        first, second, third = await three_with_a_topic(world)
        store = first.sessions[-1]
        commit = store.commit
        raced = []

        async def race(operations):
            puts = [op for op in operations if isinstance(op, Put) and "/state" in op.path]
            if puts and not raced:
                raced.append(puts)
                topic_id = first.membership.image.topics["t"].topic_id
                faster = first.state()
                faster = type(faster)(1, 0, (1, 3), (1, 2, 3), 0, 2, writer_token="faster")
                data = znodes.encode_partition(faster, 1, topic_id)
                await world.outside.commit([Put(puts[0].path, data, 0)])
            return await commit(operations)

        store.commit = race
        third.die()
        await until(lambda: first.state().isr == (1,))
        assert raced
        assert first.state().elr == (3,)
        assert second.membership.is_fenced is False

    run(scenario)


def test_one_partition_that_cannot_be_written_keeps_no_other_without_a_leader():
    async def scenario(world: World):
        first, second, third = await three_with_a_topic(world, *[(2, 1, 3)] * 5)
        await world.outside.commit([Delete("/brokers/topics/t/partitions/3/state")])
        second.die()
        await until(lambda: all(third.state(number).leader == 1 for number in (0, 1, 2, 4)))
        # Damage is no deletion: nobody may delete its data for it.
        await first.membership.observer.reload()
        assert len(first.membership.image.topics["t"].partitions) == 5
        assert not any(change.deleted for change in first.changes)

    run(scenario)


def test_more_partitions_than_one_write_takes_are_written_in_several(monkeypatch):
    monkeypatch.setattr(controller_module, "PARTITIONS_PER_WRITE", 7)

    async def scenario(world: World):
        first, second, _ = await three_with_a_topic(world, *[(2, 1, 3)] * 40)
        second.die()
        await until(lambda: all(first.state(number).leader == 1 for number in range(40)))

    run(scenario)


def test_partitions_without_a_leader_are_written_before_those_that_only_lose_a_follower(
    monkeypatch,
):
    monkeypatch.setattr(controller_module, "PARTITIONS_PER_WRITE", 2)

    async def scenario(world: World):
        led, followed = (2, 1, 3), (1, 2, 3)
        first, second, _ = await three_with_a_topic(world, followed, followed, led, followed, led)
        written: list[str] = []
        store = first.sessions[-1]
        commit = store.commit

        async def watched(operations):
            written.extend(op.path for op in operations if isinstance(op, Put))
            return await commit(operations)

        store.commit = watched
        second.die()
        await until(lambda: all(2 not in first.state(number).isr for number in range(5)))
        assert written[:2] == [znodes.partition_state_path("t", number) for number in (2, 4)]

    run(scenario)


def test_a_node_that_starts_anew_between_two_writes_is_not_elected_on_what_it_had(monkeypatch):
    monkeypatch.setattr(controller_module, "PARTITIONS_PER_WRITE", 1)
    monkeypatch.setattr(controller_module, "WRITES_AT_ONCE", 1)

    async def scenario(world: World):
        first, _, third = await three_with_a_topic(world, (3, 2, 1), (3, 2, 1))
        store = first.sessions[-1]
        commit = store.commit

        async def restarts_second(operations):
            result = await commit(operations)
            store.commit = commit
            lost = znodes.encode_incarnation("a new start", is_suspect=True)
            await world.outside.commit([Put(znodes.epoch_path(2), lost)])
            await until(lambda: 2 not in first.membership.image.brokers)
            return result

        async def until_the_first_election(operations):
            paths = [op.path for op in operations if isinstance(op, Put)]
            if paths != [znodes.partition_state_path("t", 0)]:
                return await commit(operations)
            return await restarts_second(operations)

        store.commit = until_the_first_election
        led = []
        first.membership.observer.listeners.append(lambda change: led.append(first.state(1).leader))
        third.die()
        await until(lambda: first.state(1).leader == first.state(0).leader == 1)
        assert 2 not in led

    run(scenario)


def test_a_node_that_starts_anew_during_a_write_is_not_taken_for_handled_by_it():
    async def scenario(world: World):
        first, _, third = await three_with_a_topic(world, (3, 2, 1))
        state_path = znodes.partition_state_path("t", 0)
        store = first.sessions[-1]
        commit = store.commit
        handled = []

        async def watched(operations):
            paths = [op.path for op in operations if not isinstance(op, Check)]
            if znodes.handled_path(2) in paths:
                state = json.loads((await world.outside.get(state_path)).data)
                handled.append((state["isr"], state["elr"]))
            result = await commit(operations)
            if state_path in paths and not handled and not restarts:
                restarts.append(2)
                lost = znodes.encode_incarnation("a new start", is_suspect=True)
                await world.outside.commit([Put(znodes.epoch_path(2), lost)])
                await until(lambda: 2 not in first.membership.image.brokers)
            return result

        restarts: list[int] = []
        store.commit = watched
        third.die()
        await until(lambda: bool(handled))
        # It may have lost what it had: nothing may count on it when it is let in again.
        assert handled[0] == ([1], [])

    run(scenario)


def test_all_nodes_gone_and_back_lead_again_without_a_person():
    async def scenario(world: World):
        nodes = await three_with_a_topic(world)
        for node in nodes:
            node.die()
        (first,) = await world.start(1)
        await until(lambda: first.state().leader == 1)
        assert (first.state().isr, first.state().elr) == ((1,), (2, 3))

    run(scenario)


def test_suspects_lead_only_when_all_are_back_and_the_longest_log_wins():
    async def scenario(world: World):
        nodes = await three_with_a_topic(world, (1, 2))
        world.log_ends = {1: (3, 50), 2: (3, 60)}
        nodes[0].die()
        nodes[1].die()
        third = nodes[2]
        await until(lambda: third.state().elr == (1, 2))
        await world.start(1, is_suspect=True)
        await until(lambda: third.state().last_known_elr == (1,))
        assert third.state().leader == -1
        await world.start(2, is_suspect=True)
        await until(lambda: third.state().leader == 2)
        assert (third.state().isr, third.state().last_known_elr) == ((2,), ())

    run(scenario)


def test_without_balanced_recovery_a_person_is_waited_for():
    async def scenario(world: World):
        world.is_balanced = False
        world.min_isr = 1
        nodes = await three_with_a_topic(world, (2,))
        nodes[1].die()
        await until(lambda: nodes[0].state().leader == -1)
        await world.start(2, is_suspect=True)
        await until(lambda: nodes[0].state().last_known_elr == (2,))
        await until(lambda: 2 in nodes[0].membership.image.brokers)
        assert nodes[0].state().leader == -1

    run(scenario)


def test_another_min_insync_replicas_reaches_every_state():
    async def scenario(world: World):
        (first, *_) = await three_with_a_topic(world)
        world.min_isr = 3
        config = znodes.encode_config({"min.insync.replicas": "3"})
        await world.outside.commit([Put("/config/topics/t", config)])
        await until(lambda: first.state().min_isr == 3)
        world.min_isr = 5
        await world.outside.commit([Put("/config/topics/t", znodes.encode_config({}))])
        await until(lambda: first.membership.image.topics["t"].overrides == {})
        assert first.state().min_isr == 3

    run(scenario)


def test_replicas_that_a_move_adds_are_required_in_sync_only_when_they_have_arrived():
    async def scenario(world: World):
        world.min_isr = 1
        first, *_ = await three_with_a_topic(world, (1,))
        world.min_isr = 2
        await Elections(first.membership).reassign(TopicPartition("t", 0), (1, 2, 3))
        # Not an ISR of two, either: the move is still under way.
        epochs = {2: first.membership.image.brokers[2].epoch}
        await first.membership.change_isr(TopicPartition("t", 0), first.state(), (1, 2), epochs)
        for _ in range(100):
            await asyncio.sleep(0)
        assert (first.state().adding, first.state().min_isr) == ((2, 3), 1)
        epochs[3] = first.membership.image.brokers[3].epoch
        await first.membership.change_isr(TopicPartition("t", 0), first.state(), (1, 2, 3), epochs)
        await until(lambda: first.state().min_isr == 2)
        assert (first.state().replicas, first.state().adding) == ((1, 2, 3), ())

    run(scenario)


def test_a_dead_process_is_fenced_before_its_session_ends():
    async def scenario(world: World):
        first, second, third = await three_with_a_topic(world, (2, 3, 1))
        await first.membership._port_refuses(2, 1, 0)
        await until(lambda: third.state().leader == 3)
        assert third.state().isr == (3, 1)
        assert 2 not in first.membership.image.brokers
        # Its own session still lives, and it is told.
        await until(lambda: any("fenced" in text for text in second.told))

    run(scenario)


def test_a_minority_only_is_fenced_by_its_ports():
    async def scenario(world: World):
        first, *_ = await three_with_a_topic(world, (2, 3, 1))
        world.nodes[2].membership._has_left = True
        await first.membership._port_refuses(2, 1, 0)
        await until(lambda: first.state().leader == 3)
        await first.membership._port_refuses(3, 1, 0)
        assert 3 in first.membership.image.brokers

    run(scenario)


def test_a_dead_controllers_office_is_taken_and_then_it_is_fenced():
    async def scenario(world: World):
        first, second, third = await three_with_a_topic(world)
        version = second.membership.image.controller_epoch_version
        # The first one hangs: its session lives on, and it does nothing.
        first.membership._has_left = True
        await second.membership._port_refuses(1, 1, version)
        assert second.membership.is_controller
        await until(lambda: third.state().leader == 2)
        # A third one that saw the same, a little later, deposes nobody.
        await third.membership._port_refuses(1, 1, version)
        assert second.membership.is_controller
        assert not third.membership.is_controller

    run(scenario)


def test_a_dead_controllers_epoch_ends_in_the_write_that_takes_its_office():
    async def scenario(world: World):
        first, second, third = await three_with_a_topic(world)
        membership = second.membership
        first.membership._has_left = True
        await membership._controller.depose(
            1,
            1,
            epoch_version=membership.image.controller_epoch_version,
            broker_epoch=membership.broker_epoch,
        )
        # No decision in between that still counts on it.
        assert membership.is_controller
        assert 1 not in membership.image.brokers
        await until(lambda: third.state().leader == 2)

    run(scenario)


def test_a_controller_that_has_started_again_is_not_deposed():
    async def scenario(world: World):
        _, second, _ = await three_with_a_topic(world)
        membership = second.membership
        await membership._controller.depose(
            1,
            0,
            epoch_version=membership.image.controller_epoch_version,
            broker_epoch=membership.broker_epoch,
        )
        assert not membership.is_controller
        assert membership.image.controller_id == 1

    run(scenario)


def test_an_election_whose_answer_is_lost_is_found_out():
    async def scenario(world: World):
        first, second, third = await three_with_a_topic(world)
        for node in (second, third):
            store = node.sessions[-1]
            store.commit = lossy(store.commit)
        first.die()
        await until(lambda: second.membership.is_controller or third.membership.is_controller)
        await until(lambda: second.state().leader == 2)

    def lossy(commit):
        lost = []

        async def once(operations):
            done = await commit(operations)
            if not lost and any(op.path == znodes.CONTROLLER for op in operations):
                lost.append(operations)
                raise UnknownOutcome("no answer")
            return done

        return once

    run(scenario)


def test_a_controller_that_goes_between_two_looks_is_succeeded():
    async def scenario(world: World):
        first, second = await world.start(1, 2)
        store = second.sessions[-1]
        exists, late = store.exists, [True]

        async def seen_too_late(path, on_change=None):
            found = await exists(path, on_change)
            if path == znodes.CONTROLLER and on_change is None and not found and late:
                return late.pop()
            return found

        store.exists = seen_too_late
        first.die()
        await until(lambda: second.membership.is_controller)
        assert not late

    run(scenario)


def test_topics_that_go_are_no_longer_looked_after():
    async def scenario(world: World):
        nodes = await three_with_a_topic(world)
        paths = ["/partitions/0/state", "/partitions/0", "/partitions", ""]
        await world.outside.commit([Delete(f"/brokers/topics/t{path}") for path in paths])
        await until(lambda: all("t" not in node.membership.image.topics for node in nodes))
        nodes[2].die()
        await until(lambda: 3 not in nodes[0].membership.image.brokers)
        assert nodes[0].membership.is_controller

    run(scenario)


def test_a_topic_made_anew_is_another_one():
    async def scenario(world: World):
        nodes = await three_with_a_topic(world)
        before = nodes[1].membership.image.topics["t"].topic_id
        paths = ["/partitions/0/state", "/partitions/0", "/partitions", ""]
        await world.outside.commit(
            [Delete(f"/brokers/topics/t{path}") for path in paths] + [Delete("/config/topics/t")]
        )
        await world.make_topic((2, 3), (3, 1))
        await until(
            lambda: (
                "t" in nodes[1].membership.image.topics
                and nodes[1].membership.image.topics["t"].topic_id != before
            )
        )
        assert len(nodes[1].membership.image.topics["t"].partitions) == 2
        assert any(each.deleted for each in nodes[1].changes)

    run(scenario)


def after_the_first_election(node, act):
    """Have the next write of the controller's states followed by `act`."""
    store = node.sessions[-1]
    commit = store.commit

    async def watched(operations):
        is_election = any(isinstance(op, Put) and "/state" in op.path for op in operations)
        if is_election:
            store.commit = commit
        result = await commit(operations)
        if is_election:
            await act()
        return result

    store.commit = watched


def before_the_first_election(node, act):
    """Have the next write of the controller's states preceded by `act`."""
    store = node.sessions[-1]
    commit = store.commit

    async def watched(operations):
        if any(isinstance(op, Put) and "/state" in op.path for op in operations):
            store.commit = commit
            await act()
        return await commit(operations)

    store.commit = watched


async def with_another_topic(world: World, *assignments):
    nodes = await three_with_a_topic(world, *assignments)
    await world.make_topic(*[(2, 1, 3)] * 2, name="u")
    await until(lambda: all("u" in node.membership.image.topics for node in nodes))
    # Until the controller has looked at both: it decides on all of their partitions together.
    controller = nodes[0].membership._controller
    await until(lambda: controller._due == set() and not controller._is_due.is_set())
    return nodes


def test_a_topic_that_goes_while_partitions_are_written_singly_ends_no_controller():
    async def scenario(world: World):
        first, second, _ = await with_another_topic(world, *[(2, 1, 3)] * 2)
        gone = list(znodes.delete_topic(first.membership.image.topics["t"]))

        async def delete():
            await world.outside.commit(gone)
            await until(lambda: "t" not in first.membership.image.topics)

        async def conflict():
            path = znodes.partition_state_path("u", 0)
            await world.outside.commit([Put(path, (await world.outside.get(path)).data)])
            # The write of all of them fails, and those of single ones begin.
            after_the_first_election(first, delete)

        before_the_first_election(first, conflict)
        second.die()
        await until(lambda: all(first.state(number, "u").leader == 1 for number in range(2)))

    run(scenario)


def test_a_topic_that_goes_between_two_writes_ends_no_controller(monkeypatch):
    monkeypatch.setattr(controller_module, "PARTITIONS_PER_WRITE", 1)
    monkeypatch.setattr(controller_module, "WRITES_AT_ONCE", 1)

    async def scenario(world: World):
        first, second, _ = await with_another_topic(world, *[(2, 1, 3)] * 2)
        gone = list(znodes.delete_topic(first.membership.image.topics["t"]))

        async def delete():
            await world.outside.commit(gone)
            await until(lambda: "t" not in first.membership.image.topics)

        after_the_first_election(first, delete)
        second.die()
        await until(lambda: all(first.state(number, "u").leader == 1 for number in range(2)))

    run(scenario)


def test_a_topic_made_anew_between_two_writes_gets_nothing_of_the_former(monkeypatch):
    monkeypatch.setattr(controller_module, "PARTITIONS_PER_WRITE", 1)
    monkeypatch.setattr(controller_module, "WRITES_AT_ONCE", 1)

    async def scenario(world: World):
        first, second, _ = await with_another_topic(world, *[(2, 1, 3)] * 2)
        former = first.membership.image.topics["t"]

        async def make_anew():
            await world.outside.commit(list(znodes.delete_topic(former)))
            await world.make_topic((3,), (3,))
            await until(lambda: first.membership.image.topics.get("t", former) is not former)

        after_the_first_election(first, make_anew)
        second.die()
        await until(lambda: all(first.state(number, "u").leader == 1 for number in range(2)))
        assert first.state(1).replicas == (3,)

    run(scenario)


def test_a_topic_that_goes_while_lost_partitions_are_recovered_is_no_error(caplog):
    async def scenario(world: World):
        world.min_isr = 1
        first, second, _ = await three_with_a_topic(world, (2,), (2,))
        gone = list(znodes.delete_topic(first.membership.image.topics["t"]))
        second.die()
        await until(lambda: first.state(0).leader == first.state(1).leader == -1)
        store = first.sessions[-1]
        commit = store.commit

        async def delete_after_the_first_recovery(operations):
            result = await commit(operations)
            if any(isinstance(op, Put) and b'"leader":2' in op.data for op in operations):
                store.commit = commit
                await world.outside.commit(gone)
                await until(lambda: "t" not in first.membership.image.topics)
            return result

        store.commit = delete_after_the_first_recovery
        await world.start(2, is_suspect=True)
        await until(lambda: store.commit == commit)
        # It still works.
        await world.make_topic((3, 1), name="u")
        await until(lambda: "u" in first.membership.image.topics)
        world.nodes[3].die()
        await until(lambda: first.state(0, "u").leader == 1)

    run(scenario)
    assert "failed" not in caplog.text


def test_an_error_that_nobody_expects_ends_no_controller(monkeypatch, caplog):
    monkeypatch.setattr(controller_module, "_ERROR_SECONDS", 0)

    async def scenario(world: World):
        first, second, _ = await three_with_a_topic(world, (2, 1, 3))

        async def break_once():
            raise ZeroDivisionError

        before_the_first_election(first, break_once)
        second.die()
        await until(lambda: first.state().leader == 1)

    run(scenario)
    assert "ZeroDivisionError" in caplog.text


def test_a_change_that_is_told_again_may_name_topics_that_are_gone():
    async def scenario(world: World):
        first, *_ = await three_with_a_topic(world, (2, 1, 3))
        controller = first.membership._controller
        await until(lambda: controller._due == set())
        controller._image_changed(ImageChange(created=("gone", "t"), configs=("gone",)))
        assert controller._due == {TopicPartition("t", 0)}

    run(scenario)


def test_leaders_return_to_a_node_that_is_back_within_one_check():
    async def scenario(world: World):
        world.leader_balance = LeaderBalance(True, check_seconds=0.05, percentage_max=10)
        first, second, _ = await three_with_a_topic(world, (2, 1, 3), (3, 1, 2))
        second.die()
        await until(lambda: first.state(0).leader == 1)
        assert first.state(1).leader == 3
        [second] = await world.start(2)
        # It fetches again what it missed, and the leader takes it in.
        state = first.state(0)
        epochs = {2: second.membership.broker_epoch}
        await first.membership.change_isr(TopicPartition("t", 0), state, (1, 3, 2), epochs)
        await until(lambda: first.state(0).leader == 2)
        assert first.state(0).isr == (2, 1, 3)

    run(scenario)


def test_leaders_stay_where_they_are_if_their_return_is_disabled():
    async def scenario(world: World):
        world.leader_balance = LeaderBalance(False, check_seconds=0.01, percentage_max=10)
        first, *_ = await three_with_a_topic(world, (2, 1, 3))
        await elect(world, 1)
        await asyncio.sleep(0.05)
        assert first.state(0).leader == 1

    run(scenario)


async def elect(world: World, leader: int) -> None:
    """As if this one had been elected while others were away."""
    node = world.nodes[1]
    before = node.state(0)
    after = replace(before, leader=leader, leader_epoch=before.leader_epoch + 1)
    topic_id = node.membership.image.topics["t"].topic_id
    path = znodes.partition_state_path("t", 0)
    data = znodes.encode_partition(after, 1, topic_id)
    await world.outside.commit([Put(path, data, before.version)])
    await until(lambda: node.state(0).leader == leader)


def test_many_leaders_return_in_parts(monkeypatch):
    monkeypatch.setattr(controller_module, "RETURNS_AT_ONCE", 2)
    monkeypatch.setattr(controller_module, "_RETURN_PAUSE_SECONDS", 0.0)

    async def scenario(world: World):
        first, *_ = await three_with_a_topic(world, *[(2, 1, 3)] * 5)
        world.nodes[2].die()
        await until(lambda: all(first.state(number).leader == 1 for number in range(5)))
        [second] = await world.start(2)
        for number in range(5):
            epochs = {2: second.membership.broker_epoch}
            where = TopicPartition("t", number)
            await first.membership.change_isr(where, first.state(number), (1, 3, 2), epochs)
        world.leader_balance = LeaderBalance(True, check_seconds=1000, percentage_max=10)
        first.membership._controller._compare_leaders()
        await until(lambda: all(first.state(number).leader == 2 for number in range(5)))

    run(scenario)


async def left_alone_without_its_last_leader(world: World):
    """Node 1 is out of sync, and those that were in sync are dead."""
    first, second, third = await three_with_a_topic(world, (2, 3, 1))
    state = first.state(0)
    await second.membership.change_isr(TopicPartition("t", 0), state, (2, 3), {})
    world.min_isr = 1
    third.die()
    await until(lambda: first.state(0).isr == (2,))
    second.die()
    return first


def test_an_unclean_election_happens_where_a_topic_enables_it(caplog):
    async def scenario(world: World):
        world.unclean_topics = {"t"}
        first = await left_alone_without_its_last_leader(world)
        await until(lambda: first.state(0).leader == 1)
        state = first.state(0)
        assert (state.isr, state.unclean_epoch) == ((1,), state.leader_epoch)

    run(scenario)
    assert "t-0: unclean election: node 1 leads" in caplog.text
    assert "node 2 led before, and in sync last were nodes [2]." in caplog.text


def test_no_unclean_election_happens_where_it_is_not_enabled(caplog):
    async def scenario(world: World):
        world.unclean_topics = {"another"}
        first = await left_alone_without_its_last_leader(world)
        await until(lambda: first.state(0).leader == -1)
        # Everything that the controller has to do is done.
        await asyncio.sleep(0.05)
        assert first.state(0).leader == -1

    run(scenario)
    assert "unclean" not in caplog.text


def test_without_elr_only_those_in_sync_last_may_lead():
    async def scenario(world: World):
        world.has_elr = False
        first, second, third = await three_with_a_topic(world, (1, 2, 3))
        third.die()
        second.die()
        await until(lambda: first.state(0).isr == (1,))
        assert first.state(0).elr == ()

    run(scenario)
