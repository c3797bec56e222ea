"""Reads that a change comes into the middle of, and znodes that cannot be read."""

import asyncio
import uuid
from dataclasses import replace

import pytest

from millstream.cluster import znodes
from millstream.cluster.client_entities import ClientEntity
from millstream.cluster.observer import Observer
from millstream.cluster.reading import Reader
from millstream.cluster.state import (
    BrokerState,
    ClusterImage,
    NamedResource,
    PartitionState,
    TopicState,
)
from millstream.cluster.stores.memory import MemoryStore, MemoryTree
from millstream.cluster.stores.store import ANY_VERSION, Create, Delete, Put
from millstream.errors import StartError
from millstream.security.acl import (
    Entry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from millstream.security.delegation import DelegationToken
from tests.cluster.world import until


def test_the_controller_and_its_epoch_are_of_one_moment():
    async def scenario():
        store = MemoryTree().open_session()
        first, second = (znodes.encode_controller(number, "s", 0) for number in (1, 2))
        await store.commit(
            [Create(znodes.CONTROLLER_EPOCH, b"5"), Create(znodes.CONTROLLER, first)]
        )
        exists, takeovers = store.exists, [1]

        async def taken_over_meanwhile(path, on_change=None):
            if takeovers:
                takeovers.pop()
                await store.commit(
                    [
                        Delete(znodes.CONTROLLER),
                        Create(znodes.CONTROLLER, second),
                        Put(znodes.CONTROLLER_EPOCH, b"6"),
                    ]
                )
            return await exists(path, on_change)

        store.exists = taken_over_meanwhile
        found = await Reader(store, ClusterImage(), lambda mark: None).read({("controller",)})
        read = found.controller
        assert (read.broker_id, read.epoch, read.epoch_version) == (2, 6, 1)

    asyncio.run(scenario())


TOPIC_ID = uuid.UUID(int=7)
PATTERN = ResourcePattern(ResourceType.TOPIC, "t", PatternType.LITERAL)
ENTRIES = frozenset({Entry("User:a", "*", Operation.READ, Permission.DENY)})
TOKEN = DelegationToken("id", "User:a", "User:a", (), 1, 2, 3)
ALICE = ClientEntity(user="alice")


def state(leader: int, version: int = 0) -> PartitionState:
    return PartitionState(leader, version, (1, 2), (1, 2), version, 1, writer_token="made")


def state_data(leader: int, version: int) -> bytes:
    return znodes.encode_partition(state(leader, version), 1, TOPIC_ID)


async def observed() -> tuple[MemoryStore, Observer]:
    """One of everything, and who watches it."""
    store = MemoryTree().open_session()
    options = {"x": "1"}
    topic = TopicState("t", TOPIC_ID, [state(1), state(1)], {"retention.ms": "5"})
    await store.commit([Create(path) for path in znodes.BASE_PATHS])
    await store.commit(
        [
            *znodes.create_topic(topic, controller_epoch=1),
            Create(znodes.CONTROLLER_EPOCH, b"1"),
            Create(znodes.CONTROLLER, znodes.encode_controller(1, "s", 0)),
            Create(znodes.epoch_path(1), znodes.encode_incarnation("s", is_suspect=False)),
            Create(znodes.handled_path(1), b"0"),
            Create(znodes.broker_path(1), znodes.encode_broker(BrokerState(1, epoch=0), 0)),
            Create(znodes.broker_config_path(1), znodes.encode_config(options)),
            Create(
                znodes.named_config_path(NamedResource.GROUP, "g"), znodes.encode_config(options)
            ),
            Create(znodes.entity_config_path(ALICE), znodes.encode_config(options)),
            Create(znodes.acl_path(PATTERN), znodes.encode_acls(ENTRIES)),
            Create(znodes.token_path("id"), znodes.encode_token(TOKEN)),
        ]
    )
    observer = Observer(store, ClusterImage())
    await observer.start()
    return store, observer


def content(image: ClusterImage) -> list[object]:
    return [
        image.topics,
        image.brokers,
        image.incarnations,
        image.handled,
        image.broker_overrides,
        image.named_overrides,
        dict(image.client_entities.options),
        dict(image.acls.entries),
        dict(image.delegation_tokens.tokens),
        image.controller_id,
        image.controller_epoch,
    ]


UNREADABLE = {
    "topic": znodes.topic_path("t"),
    "state": znodes.partition_state_path("t", 0),
    "options of a topic": znodes.topic_config_path("t"),
    "node": znodes.broker_path(1),
    "start": znodes.epoch_path(1),
    "handled start": znodes.handled_path(1),
    "options of a node": znodes.broker_config_path(1),
    "group": znodes.named_config_path(NamedResource.GROUP, "g"),
    "user": znodes.entity_config_path(ALICE),
    "ACLs": znodes.acl_path(PATTERN),
    "changes of ACLs": znodes.ACL_CHANGES,
    "token": znodes.token_path("id"),
    "controller": znodes.CONTROLLER,
    "controller epoch": znodes.CONTROLLER_EPOCH,
}


@pytest.mark.parametrize("path", UNREADABLE.values(), ids=UNREADABLE)
def test_what_cannot_be_read_stays_as_it_was_and_all_else_is_followed(path, caplog):
    async def scenario():
        store, observer = await observed()
        image = observer.image
        wanted = content(image)
        broken = [Put(path, b"{]", ANY_VERSION)]
        if path in (znodes.acl_path(PATTERN), znodes.token_path("id")):
            parent = znodes.ACL_CHANGES if path != znodes.token_path("id") else znodes.TOKENS
            broken.append(Put(parent, znodes.encode_acl_changes([PATTERN]), ANY_VERSION))
        if path == znodes.entity_config_path(ALICE):
            broken.append(Put(znodes.USER_CONFIGS, b"", ANY_VERSION))
        await store.commit(broken)
        observer.poll()
        await until(lambda: f"{path} cannot be read" in caplog.text)
        assert content(image) == wanted
        # As after a session has ended, and in every poll.
        again = Observer(store, image)
        await again.start()
        again.poll()
        await again.refresh()
        assert content(image) == wanted
        await store.commit([Put(znodes.partition_state_path("t", 1), state_data(2, 1))])
        await until(lambda: image.topics["t"].partitions[1].leader == 2)
        topic = TopicState("u", uuid.UUID(int=8), [state(1)])
        await store.commit([*znodes.create_topic(topic, controller_epoch=1)])
        await until(lambda: "u" in image.topics)
        await observer.stop()
        await again.stop()

    asyncio.run(scenario())
    # Each of the two says it at most once, and not with every poll.
    assert caplog.text.count(f"{path} cannot be read") <= 2


def test_a_state_that_cannot_be_read_keeps_no_other_one_as_it_was():
    async def scenario():
        store, observer = await observed()
        await observer.stop()
        first, second = (znodes.partition_state_path("t", number) for number in (0, 1))
        await store.commit([Put(first, b""), Put(second, state_data(2, 1))])
        again = Observer(store, observer.image)
        await again.start()
        assert [one.leader for one in observer.image.topics["t"].partitions] == [1, 2]
        await again.stop()

    asyncio.run(scenario())


def test_a_new_topic_that_cannot_be_read_waits_until_it_can(caplog):
    async def scenario():
        store, observer = await observed()
        topic = TopicState("u", uuid.UUID(int=8), [state(1)])
        config = znodes.topic_config_path("u")
        await store.commit(
            [
                replace(step, data=b"{]") if step.path == config else step
                for step in znodes.create_topic(topic, controller_epoch=1)
            ]
        )
        await until(lambda: config in caplog.text)
        assert "u" not in observer.image.topics
        await store.commit([Put(config, znodes.encode_config({}))])
        observer.poll()
        await until(lambda: "u" in observer.image.topics)
        await observer.stop()

    asyncio.run(scenario())


def test_a_node_without_an_image_does_not_start_with_what_it_cannot_read():
    async def scenario():
        store, observer = await observed()
        await observer.stop()
        await store.commit([Put(znodes.topic_path("t"), b"{]")])
        with pytest.raises(StartError, match="/brokers/topics/t in ZooKeeper cannot be read"):
            await Observer(store, ClusterImage()).start()

    asyncio.run(scenario())
