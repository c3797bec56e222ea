"""Changes that clients ask for, at any node of a cluster, over a store in memory."""

import asyncio
import itertools
from dataclasses import replace

import pytest

from millstream.cluster import incomplete_topics, member_publisher, znodes
from millstream.cluster.changes import ConfigChange, ConfigOperation, NewTopic
from millstream.cluster.client_entities import ClientEntity
from millstream.cluster.member_publisher import MemberPublisher
from millstream.cluster.metadata import ClusterMetadata
from millstream.cluster.requested_elections import Elections
from millstream.cluster.state import NamedResource
from millstream.cluster.stores.store import Delete, NoNode, Put, UnknownOutcome
from millstream.config import load_config
from millstream.errors import KafkaCode, KafkaError
from millstream.model import TopicPartition
from millstream.security.delegation import DelegationToken
from tests.cluster.world import Node, World, run, until


def controller_at(node: Node) -> ClusterMetadata:
    numbers = itertools.count(node.id * 1_000)
    return ClusterMetadata(
        MemberPublisher(node.membership),
        load_config(),
        broker_id=node.id,
        random_bytes=lambda count: next(numbers).to_bytes(count, "big"),
    )


def test_a_topic_made_at_one_node_is_seen_at_all():
    async def scenario(world: World):
        nodes = await world.start(1, 2, 3)
        controller = controller_at(nodes[2])
        await until(lambda: len(nodes[2].membership.image.brokers) == 3)
        wanted = NewTopic("t", 2, 3, configs={"min.insync.replicas": "2"})
        (result,) = await controller.create_topics([wanted])
        assert result.error is None
        state = controller.image.topics["t"].partitions[0]
        assert (len(state.isr), state.leader, state.min_isr) == (3, state.replicas[0], 2)
        await until(lambda: "t" in nodes[0].membership.image.topics)
        assert nodes[0].membership.image.topics["t"] == controller.image.topics["t"]
        grown = await controller_at(nodes[0]).create_partitions("t", 5)
        assert len(grown.state.partitions) == 5
        await until(lambda: len(controller.image.topics["t"].partitions) == 5)
        await controller_at(nodes[1]).delete_topics(["t"])
        await until(lambda: not any(node.membership.image.topics for node in nodes))

    run(scenario)


def test_of_two_nodes_that_make_one_topic_one_hears_that_it_exists():
    async def scenario(world: World):
        nodes = await world.start(1, 2)
        await until(lambda: all(len(n.membership.image.brokers) == 2 for n in nodes))
        results = await asyncio.gather(
            *(controller_at(node).create_topics([NewTopic("t", 1, 2)]) for node in nodes)
        )
        codes = [result.error.code if result.error else None for (result,) in results]
        assert sorted(codes, key=str) == [KafkaCode.TOPIC_ALREADY_EXISTS, None]
        blocks = await asyncio.gather(
            *(controller_at(node).allocate_producer_ids() for node in nodes * 3)
        )
        assert sorted(block.start for block in blocks) == [0, 1000, 2000, 3000, 4000, 5000]

    run(scenario)


def test_two_changes_of_options_at_two_nodes_are_both_kept():
    async def scenario(world: World):
        nodes = await world.start(1, 2)
        first, second = map(controller_at, nodes)
        await first.create_topics([NewTopic("t", 1, 1)])
        await until(lambda: "t" in second.image.topics)
        await asyncio.gather(
            first.alter_topic_configs("t", [ConfigChange("retention.ms", "5")]),
            second.alter_topic_configs("t", [ConfigChange("segment.ms", "7")]),
        )
        both = {"retention.ms": "5", "segment.ms": "7"}
        await until(lambda: first.image.topics["t"].overrides == both)
        await first.alter_broker_configs(None, [ConfigChange("log.retention.ms", "9")])
        await until(lambda: second.effective_config.int("log.retention.ms") == 9)
        await first.alter_named_configs(
            NamedResource.GROUP, "g", [ConfigChange("consumer.session.timeout.ms", "50000")]
        )
        await until(lambda: "g" in second.image.group_overrides)
        await second.replace_named_configs(NamedResource.GROUP, "g", {})
        await until(lambda: "g" not in first.image.group_overrides)
        subscribed = NamedResource.CLIENT_METRICS
        await first.alter_named_configs(subscribed, "s", [ConfigChange("metrics", "*")])
        await until(lambda: second.image.client_metrics == {"s": {"metrics": "*"}})
        deletion = ConfigChange("metrics", None, ConfigOperation.DELETE)
        await second.alter_named_configs(subscribed, "s", [deletion])
        await until(lambda: first.image.client_metrics == {})

    run(scenario)


def test_every_node_learns_the_options_of_users_and_of_their_clients():
    async def scenario(world: World):
        nodes = await world.start(1, 2)
        first, second = map(controller_at, nodes)
        seen: list[frozenset[ClientEntity]] = []
        second.image.client_entities.listeners.append(seen.append)
        user, both = ClientEntity(user="u"), ClientEntity(user="u", client_id="c/1")
        await first.alter_client_entity(both, {"producer_byte_rate": "1"})
        assert first.image.client_entities.options == {both: {"producer_byte_rate": "1"}}
        await until(lambda: both in second.image.client_entities.options)
        await asyncio.gather(
            first.alter_client_entity(user, {"a": "1"}),
            second.alter_client_entity(user, {"b": "2"}),
        )
        for metadata in (first, second):
            entities = metadata.image.client_entities
            await until(lambda e=entities: e.options_of(user) == {"a": "1", "b": "2"})
        await second.alter_client_entity(both, {"producer_byte_rate": None})
        await until(lambda: both not in first.image.client_entities.options)
        assert {entity for changed in seen for entity in changed} == {user, both}

    run(scenario)


def test_every_node_learns_of_a_delegation_token_and_of_its_end():
    async def scenario(world: World):
        nodes = await world.start(1, 2)
        first, second = map(controller_at, nodes)
        token = DelegationToken("id", "User:a", "User:a", ("User:b",), 1, 9, 5)
        await first.change_token("id", lambda _: token)
        assert first.image.delegation_tokens.tokens == {"id": token}
        await until(lambda: second.image.delegation_tokens.tokens == {"id": token})
        changes = [
            metadata.change_token("id", lambda t: replace(t, expires_at_ms=t.expires_at_ms + 1))
            for metadata in (first, second)
        ]
        await asyncio.gather(*changes)
        later = {"id": replace(token, expires_at_ms=7)}
        for metadata in (first, second):
            await until(lambda m=metadata: m.image.delegation_tokens.tokens == later)
        await second.change_token("id", lambda _: None)
        await until(lambda: not first.image.delegation_tokens.tokens)

    run(scenario)


def test_a_lost_hint_about_a_user_is_made_up_for_by_a_poll():
    async def scenario(world: World):
        (node,) = await world.start(1)
        image, user = node.membership.image, ClientEntity(user="u")
        await controller_at(node).alter_client_entity(user, {"a": "1"})
        observer = node.membership.observer
        before = image.client_entities.options
        observer.poll()
        await observer.refresh()
        assert image.client_entities.options is before
        data = znodes.encode_config({"a": "2"})
        # Without the write to the root there is no hint.
        await world.outside.commit([Put(znodes.entity_config_path(user), data)])
        observer.poll()
        await observer.refresh()
        assert image.client_entities.options_of(user) == {"a": "1"}
        await world.outside.commit([Put(znodes.USER_CONFIGS, b"")])
        observer.poll()
        await observer.refresh()
        assert image.client_entities.options_of(user) == {"a": "2"}

    run(scenario)


def test_a_large_topic_is_visible_whole_or_not_at_all(monkeypatch):
    monkeypatch.setattr(member_publisher, "OPERATIONS_MAX", 20)

    async def scenario(world: World):
        nodes = await world.start(1, 2)
        controller = controller_at(nodes[1])
        seen = []
        nodes[0].image_changed = lambda change: seen.append(
            {name: len(t.partitions) for name, t in nodes[0].membership.image.topics.items()}
        )
        await controller.create_topics([NewTopic("t", 50, 1)])
        await until(lambda: "t" in nodes[0].membership.image.topics)
        assert all(sizes in ({}, {"t": 50}) for sizes in seen)
        await controller.delete_topics(["t"])
        await until(lambda: "t" not in nodes[0].membership.image.topics)
        assert await world.outside.children("/brokers/topics") == []
        assert all(sizes in ({}, {"t": 50}) for sizes in seen)

    run(scenario)


def test_what_an_earlier_attempt_left_does_not_stop_the_next():
    async def scenario(world: World):
        (node,) = await world.start(1)
        controller = controller_at(node)
        await controller.create_topics([NewTopic("t", 1, 1)])
        # Cut short after the new partition, before the topic's own node had it.
        await world.create("/brokers/topics/t/partitions/1")
        await world.create("/brokers/topics/t/partitions/1/state", b"{}")
        grown = await controller.create_partitions("t", 3)
        assert grown.error is None
        assert [p.leader for p in controller.image.topics["t"].partitions] == [1, 1, 1]

    run(scenario)


def failing_after(store, commits):
    """The connection is lost after so many writes of topics; returns what ends that."""
    commit, left = store.commit, [commits]

    async def cut_short(operations):
        left[0] -= any(each.path.startswith(znodes.TOPICS) for each in operations)
        if left[0] < 0:
            raise UnknownOutcome
        return await commit(operations)

    store.commit = cut_short

    def mend():
        store.commit = commit

    return mend


@pytest.mark.parametrize("commits", [0, 1, 3])
def test_a_large_topic_whose_creation_was_interrupted_can_be_created_again(monkeypatch, commits):
    monkeypatch.setattr(member_publisher, "OPERATIONS_MAX", 20)

    async def scenario(world: World):
        (node,) = await world.start(1)
        controller = controller_at(node)
        mend = failing_after(node.sessions[-1], commits)
        with pytest.raises(KafkaError) as failed:
            await controller.create_topics([NewTopic("t", 50, 1)])
        assert failed.value.code is KafkaCode.REQUEST_TIMED_OUT
        mend()
        (result,) = await controller.create_topics([NewTopic("t", 60, 1)])
        assert result.error is None
        assert len(controller.image.topics["t"].partitions) == 60

    run(scenario)


@pytest.mark.parametrize("commits", [1, 2, 3])
def test_the_name_of_a_large_topic_whose_deletion_was_interrupted_is_free(monkeypatch, commits):
    monkeypatch.setattr(member_publisher, "OPERATIONS_MAX", 20)
    monkeypatch.setattr(incomplete_topics, "_DELETES_PER_WRITE", 20)

    async def scenario(world: World):
        (node,) = await world.start(1)
        controller = controller_at(node)
        await controller.create_topics([NewTopic("t", 50, 1)])
        mend = failing_after(node.sessions[-1], commits)
        with pytest.raises(KafkaError) as failed:
            await controller.delete_topics(["t"])
        assert failed.value.code is KafkaCode.REQUEST_TIMED_OUT
        mend()
        await until(lambda: "t" not in controller.image.topics)
        (result,) = await controller.create_topics([NewTopic("t", 2, 1)])
        assert result.error is None
        assert len(await world.outside.children("/brokers/topics/t/partitions")) == 2

    run(scenario)


@pytest.mark.parametrize("operations_max", [4, 400])
def test_a_topic_can_be_deleted_after_an_interrupted_addition_of_partitions(
    monkeypatch, operations_max
):
    monkeypatch.setattr(member_publisher, "OPERATIONS_MAX", 4)

    async def scenario(world: World):
        (node,) = await world.start(1)
        controller = controller_at(node)
        await controller.create_topics([NewTopic("t", 1, 1)])
        mend = failing_after(node.sessions[-1], 2)
        with pytest.raises(KafkaError):
            await controller.create_partitions("t", 9)
        mend()
        assert len(await world.outside.children("/brokers/topics/t/partitions")) == 5
        monkeypatch.setattr(member_publisher, "OPERATIONS_MAX", operations_max)
        (result,) = await controller.delete_topics(["t"])
        assert result.error is None
        assert await world.outside.children("/brokers/topics") == []
        assert await world.outside.children("/config/topics") == []

    run(scenario)


def test_partitions_are_not_added_to_a_topic_that_is_being_deleted(monkeypatch):
    monkeypatch.setattr(member_publisher, "OPERATIONS_MAX", 4)

    async def scenario(world: World):
        (node,) = await world.start(1)
        controller = controller_at(node)
        await controller.create_topics([NewTopic("t", 1, 1)])
        store = node.sessions[-1]
        commit, written = store.commit, []

        async def deleted_after_the_first(operations):
            versions = await commit(operations)
            if not written:
                # The first write of a deletion in parts.
                await world.set("/brokers/topics/t", b"")
            written.append(operations)
            return versions

        store.commit = deleted_after_the_first
        result = await controller.create_partitions("t", 9)
        assert result.error.code is KafkaCode.UNKNOWN_TOPIC_OR_PARTITION
        assert len(written) == 1

    run(scenario)


def test_partitions_that_are_added_during_a_move_get_as_many_replicas_as_it_leaves():
    async def scenario(world: World):
        nodes = await world.start(1, 2, 3)
        controller = controller_at(nodes[0])
        await until(lambda: len(controller.image.brokers) == 3)
        await controller.create_topics([NewTopic("t", assignments={0: [1]})])
        await Elections(nodes[0].membership).reassign(TopicPartition("t", 0), (2,))
        assert controller.image.topics["t"].partitions[0].replicas == (2, 1)
        grown = await controller.create_partitions("t", 2)
        assert len(grown.state.partitions[1].replicas) == 1

    run(scenario)


def test_a_node_that_is_fenced_changes_nothing():
    async def scenario(world: World):
        nodes = await world.start(1, 2)
        controller = controller_at(nodes[1])
        await until(lambda: len(controller.image.brokers) == 2)
        await world.outside.commit([Delete("/brokers/ids/2")])
        with pytest.raises(KafkaError) as refused:
            await controller.create_topics([NewTopic("t", 1, 1)])
        assert refused.value.code is KafkaCode.BROKER_NOT_AVAILABLE
        nodes[1].membership._has_left = True
        nodes[1].sessions[-1].expire()
        with pytest.raises(KafkaError) as refused:
            await controller.allocate_producer_ids()
        assert refused.value.code is KafkaCode.REQUEST_TIMED_OUT
        with pytest.raises(NoNode):
            await world.outside.get("/brokers/topics/t")

    run(scenario)
