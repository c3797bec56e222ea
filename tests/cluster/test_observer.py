"""What enters the image together, and what does not wait for it."""

import asyncio
import uuid
from dataclasses import replace

from millstream.cluster import observer as observer_module
from millstream.cluster import znodes
from millstream.cluster.observer import ImageChange, Observer
from millstream.cluster.state import ClusterImage, PartitionState, TopicState
from millstream.cluster.stores.memory import MemoryStore, MemoryTree
from millstream.cluster.stores.store import Create, Node, Put
from millstream.model import TopicPartition
from tests.cluster.world import until

TOPIC_ID = uuid.UUID(int=7)


def state(leader: int, version: int = 0) -> PartitionState:
    return PartitionState(
        leader=leader,
        leader_epoch=version,
        isr=(1, 2),
        replicas=(1, 2),
        version=version,
        min_isr=1,
        writer_token="made",
    )


def test_of_many_states_the_first_take_effect_before_the_last_are_read(monkeypatch):
    monkeypatch.setattr(observer_module, "STATES_PER_ROUND", 2)

    async def scenario():
        store = MemoryTree().open_session()
        await store.commit([Create(path) for path in znodes.BASE_PATHS])
        await store.commit([Create(znodes.CONTROLLER_EPOCH, b"1")])
        topic = TopicState("t", TOPIC_ID, [state(1)] * 5)
        await store.commit(list(znodes.create_topic(topic, controller_epoch=1)))
        observer = Observer(store, ClusterImage())
        await observer.start()
        changes: list[ImageChange] = []
        observer.listeners.append(changes.append)
        await store.commit(
            [
                Put(
                    znodes.partition_state_path("t", number),
                    znodes.encode_partition(state(2, 1), 1, TOPIC_ID),
                )
                for number in (3, 1, 4, 0, 2)
            ]
        )
        await until(lambda: observer.image.topics["t"].partitions[2].leader == 2)
        # In the order in which they were written.
        rounds = [[where.partition for where in change.partitions] for change in changes]
        assert rounds == [[3, 1], [4, 0], [2]]
        await observer.stop()

    asyncio.run(scenario())


async def observed(count: int) -> tuple[MemoryStore, Observer]:
    """A topic with so many partitions, and who watches it."""
    store = MemoryTree().open_session()
    await store.commit([Create(path) for path in znodes.BASE_PATHS])
    await store.commit([Create(znodes.CONTROLLER_EPOCH, b"1")])
    topic = TopicState("t", TOPIC_ID, [state(1)] * count)
    await store.commit(list(znodes.create_topic(topic, controller_epoch=1)))
    observer = Observer(store, ClusterImage())
    await observer.start()
    return store, observer


async def write(store: MemoryStore, count: int, leader: int, version: int) -> dict:
    data = znodes.encode_partition(state(leader, version), 1, TOPIC_ID)
    paths = [znodes.partition_state_path("t", number) for number in range(count)]
    versions = await store.commit([Put(path, data) for path in paths])
    return {TopicPartition("t", number): Node(data, v) for number, v in enumerate(versions)}


def reads_of_states(store: MemoryStore) -> list[str]:
    """The paths of states that are read from now on."""
    found = []
    get = store.get

    async def noted(path, *more):
        if path.endswith("/state"):
            found.append(path)
        return await get(path, *more)

    store.get = noted
    return found


def test_many_states_that_the_controller_tells_are_read_only_later(monkeypatch):
    monkeypatch.setattr(observer_module, "POSTPONED_FROM", 3)
    monkeypatch.setattr(observer_module, "POSTPONED_SECONDS", 0.05)

    async def scenario():
        store, observer = await observed(4)
        read = reads_of_states(store)
        observer.enter_told(await write(store, 4, leader=2, version=1))
        assert [one.leader for one in observer.image.topics["t"].partitions] == [2] * 4
        assert observer.has_postponed
        await asyncio.sleep(0)
        assert read == []
        # Nothing hints at this one: it is seen when they are read and watched again.
        await write(store, 1, leader=1, version=2)
        await until(lambda: observer.image.topics["t"].partitions[0].leader == 1)
        assert not observer.has_postponed
        await write(store, 1, leader=2, version=3)
        await until(lambda: observer.image.topics["t"].partitions[0].leader == 2)
        await observer.stop()

    asyncio.run(scenario())


def test_an_observer_without_anything_to_read_lets_others_run(monkeypatch):
    monkeypatch.setattr(observer_module, "POSTPONED_FROM", 3)

    async def scenario():
        store, observer = await observed(3)
        told = await write(store, 3, leader=2, version=1)
        # The watches have fired, and nothing was read yet.
        observer.enter_told(told)
        async with asyncio.timeout(10):
            for _ in range(100):
                await asyncio.sleep(0)
        await observer.stop()

    asyncio.run(scenario())


def test_what_is_told_of_unknown_topics_or_an_older_state_changes_nothing():
    async def scenario():
        store, observer = await observed(1)
        new = await write(store, 1, leader=2, version=1)
        observer.enter_told(new)
        data = znodes.encode_partition(state(1, 0), 1, TOPIC_ID)
        observer.enter_told(
            {TopicPartition("t", 0): Node(data, 0), TopicPartition("u", 0): Node(data, 9)}
        )
        assert observer.image.topics["t"].partitions[0].leader == 2
        assert "u" not in observer.image.topics
        other = znodes.encode_partition(state(1, 7), 1, uuid.UUID(int=8))
        observer.enter_told({TopicPartition("t", 0): Node(other, 9)})
        assert observer.image.topics["t"].partitions[0].leader == 2
        await observer.stop()

    asyncio.run(scenario())


def test_a_state_that_is_seen_before_its_topic_has_its_own_replicas():
    # A leader that saw the state with the replicas of before never let the new one in: what it
    # read afterwards had the same version.
    async def scenario():
        _, observer = await observed(1)
        moving = replace(state(1, 1), replicas=(3, 1, 2), adding=(3,), removing=(2,))
        data = znodes.encode_partition(moving, 1, TOPIC_ID)
        observer.enter_told({TopicPartition("t", 0): Node(data, 1)})
        assert observer.image.topics["t"].partitions[0] == moving
        await observer.stop()

    asyncio.run(scenario())


def test_a_write_of_a_topic_cannot_be_based_on_an_older_image():
    # Between the reads of a topic and of its partitions, its new version came with its old
    # replicas: a write then undid another partition's move.
    async def scenario():
        store, observer = await observed(1)
        await observer.stop()
        moving = replace(state(1, 1), replicas=(3, 1, 2), adding=(3,), removing=(2,))
        await store.commit(
            [
                Put(
                    znodes.topic_path("t"), znodes.encode_topic(TopicState("t", TOPIC_ID, [moving]))
                ),
                Put(
                    znodes.partition_state_path("t", 0),
                    znodes.encode_partition(moving, 1, TOPIC_ID),
                ),
            ]
        )
        seen = []
        get = store.get

        async def noted(path, *more):
            seen.append((observer.topic_version("t"), observer.image.topics["t"].partitions[0]))
            return await get(path, *more)

        store.get = noted
        await observer.read_topic("t")
        assert {version for version, _ in seen} == {0}, "while it is read"
        assert observer.topic_version("t") == 1
        assert observer.image.topics["t"].partitions[0] == moving

    asyncio.run(scenario())


async def create(store: MemoryStore, name: str, number: int) -> None:
    topic = TopicState(name, uuid.UUID(int=number), [state(1)])
    await store.commit(list(znodes.create_topic(topic, controller_epoch=1)))


def test_an_error_that_nobody_expects_ends_no_observer(monkeypatch, caplog):
    monkeypatch.setattr(observer_module, "_ERROR_SECONDS", 0)

    async def scenario():
        store, observer = await observed(1)
        children = store.children

        async def fail_once(path, on_change=None):
            store.children = children
            raise ZeroDivisionError

        store.children = fail_once
        await create(store, "u", 8)
        await until(lambda: "u" in observer.image.topics)
        await observer.stop()

    asyncio.run(scenario())
    assert "ZeroDivisionError" in caplog.text


def test_a_listener_that_fails_is_told_again_and_hides_nothing_from_the_next(monkeypatch, caplog):
    monkeypatch.setattr(observer_module, "_ERROR_SECONDS", 0)

    async def scenario():
        store, observer = await observed(1)
        told: list[ImageChange] = []
        told_next: list[ImageChange] = []

        def fail_twice(change: ImageChange) -> None:
            told.append(change)
            if len(told) < 3:
                raise ZeroDivisionError

        observer.listeners += [fail_twice, told_next.append]
        [deleted] = observer.image.topics.values()
        await store.commit([*znodes.delete_topic(deleted)])
        await until(lambda: told)
        # A deletion is not told again: there may be another topic of that name.
        await create(store, "t", 8)
        await until(lambda: len(told) == 3)
        assert [change.created for change in told] == [(), ("t",), ("t",)]
        assert [len(change.deleted) for change in told] == [1, 0, 0]
        assert [change.created for change in told_next] == [(), ("t",)]
        await observer.stop()

    asyncio.run(scenario())
    assert caplog.text.count("could not be followed here") == 2


def test_a_listener_that_has_gone_is_not_told_again(monkeypatch):
    monkeypatch.setattr(observer_module, "_ERROR_SECONDS", 0)

    async def scenario():
        store, observer = await observed(1)
        told: list[ImageChange] = []

        def fail(change: ImageChange) -> None:
            told.append(change)
            observer.listeners.remove(fail)
            raise ZeroDivisionError

        observer.listeners.append(fail)
        await create(store, "u", 8)
        await until(lambda: told)
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(told) == 1
        await observer.stop()

    asyncio.run(scenario())
