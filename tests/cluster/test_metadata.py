import asyncio
import contextlib
import itertools
import time
from collections.abc import Awaitable, Callable

import pytest

from millstream.cluster.changes import ConfigChange, ConfigOperation, NewTopic
from millstream.cluster.client_entities import ClientEntity
from millstream.cluster.metadata import ClusterMetadata, start_alone
from millstream.cluster.state import NamedResource
from millstream.cluster.stores.memory import MemoryTree
from millstream.cluster.stores.store import BadVersion, Put
from millstream.config import Source, load_config
from millstream.errors import KafkaCode, KafkaError


class World:
    """One node's store, over several starts of its controller."""

    def __init__(self, *sets: str) -> None:
        self.tree = MemoryTree()
        self.config = load_config(sets=sets)
        self._bytes = itertools.count(1)

    async def start(self, cluster_id: str | None = None) -> ClusterMetadata:
        alone = await start_alone(
            self.tree.open_session(),
            broker_id=1,
            random_bytes=self._random_bytes,
            cluster_id=cluster_id,
        )
        return ClusterMetadata(alone, self.config, broker_id=1, random_bytes=self._random_bytes)

    def _random_bytes(self, count: int) -> bytes:
        return next(self._bytes).to_bytes(count, "big")

    def run(self, scenario: Callable[[ClusterMetadata], Awaitable[None]]) -> None:
        async def started() -> None:
            await scenario(await self.start())

        asyncio.run(started())


def codes(results):
    return [result.error.code if result.error else None for result in results]


def test_a_new_cluster_gets_an_id_of_kafkas_form_and_keeps_it():
    async def scenario():
        world = World()
        first = (await world.start()).image.cluster_id
        assert len(first) == 22
        assert (await world.start()).image.cluster_id == first
        assert (await world.start("given-later")).image.cluster_id == first
        assert (await World().start("taken-over")).image.cluster_id == "taken-over"

    asyncio.run(scenario())


def test_an_id_never_begins_like_a_flag():
    async def scenario():
        world = World()
        # 0xf8 gives "-" as the first of the 22 characters.
        offered = iter([b"\xf8" + bytes(15), bytes(15) + b"\x01"])
        world._random_bytes = lambda count: next(offered)
        assert (await world.start()).image.cluster_id.startswith("A")

    asyncio.run(scenario())


def test_topics_last_and_every_start_raises_every_leader_epoch():
    async def scenario():
        world = World()
        first = await world.start()
        wanted = NewTopic("a", partitions=3, configs={"retention.ms": "5"})
        (result,) = await first.create_topics([wanted])
        assert [p.leader_epoch for p in result.state.partitions] == [0, 0, 0]
        for epoch in (1, 2, 3):
            image = (await world.start()).image
            topic = image.topics["a"]
            assert topic.topic_id == result.state.topic_id
            assert topic.overrides == {"retention.ms": "5"}
            assert [p.leader_epoch for p in topic.partitions] == [epoch] * 3
            assert {(p.leader, p.isr, p.replicas) for p in topic.partitions} == {(1, (1,), (1,))}
            assert [p.version for p in topic.partitions] == [epoch] * 3

    asyncio.run(scenario())


def test_a_partition_epoch_in_the_image_is_the_version_in_the_store():
    async def scenario():
        world = World()
        controller = await world.start()
        await controller.create_topics([NewTopic("a")])
        await world.start()
        store = world.tree.open_session()
        path = "/brokers/topics/a/partitions/0/state"
        image = (await world.start()).image
        assert (await store.get(path)).version == image.topics["a"].partitions[0].version
        with pytest.raises(BadVersion):
            await store.commit([Put(path, b"", version=0)])

    asyncio.run(scenario())


def test_defaults_fill_in_what_a_new_topic_leaves_open():
    async def scenario(controller):
        (result,) = await controller.create_topics([NewTopic("a")])
        assert len(result.state.partitions) == 4
        assert controller.image.topics["a"] is result.state

    World("num.partitions=4").run(scenario)


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (NewTopic(""), KafkaCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("a/b"), KafkaCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("present.one"), KafkaCode.TOPIC_ALREADY_EXISTS),
        (NewTopic("present_one"), KafkaCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("__cluster_metadata"), KafkaCode.INVALID_REQUEST),
        (NewTopic("a", partitions=0), KafkaCode.INVALID_PARTITIONS),
        (NewTopic("a", partitions=-2), KafkaCode.INVALID_PARTITIONS),
        (NewTopic("a", replication_factor=0), KafkaCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("a", replication_factor=2), KafkaCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("a", partitions=1, assignments={0: [1]}), KafkaCode.INVALID_REQUEST),
        (NewTopic("a", assignments={1: [1]}), KafkaCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("a", assignments={0: []}), KafkaCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("a", assignments={0: [1, 1]}), KafkaCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("a", assignments={0: [9]}), KafkaCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("a", configs={"no.such": "1"}), KafkaCode.INVALID_CONFIG),
        (NewTopic("a", configs={"retention.ms": "x"}), KafkaCode.INVALID_CONFIG),
        (NewTopic("a", configs={"retention.ms": None}), KafkaCode.INVALID_CONFIG),
    ],
)
def test_a_topic_that_cannot_be_gets_kafkas_code_and_leaves_nothing(wanted, code):
    async def scenario(controller):
        await controller.create_topics([NewTopic("present.one")])
        results = await controller.create_topics([wanted, NewTopic("good")])
        assert codes(results) == [code, None]
        assert set(controller.image.topics) == {"present.one", "good"}

    World().run(scenario)


def test_a_request_that_would_create_too_many_partitions_creates_none():
    async def scenario(controller):
        for wanted in (
            [NewTopic("a", partitions=10_001), NewTopic("b")],
            [NewTopic(f"t{i}") for i in range(10_001)],
        ):
            results = await controller.create_topics(wanted)
            assert codes(results) == [KafkaCode.POLICY_VIOLATION] * len(wanted)
        assert not controller.image.topics

    World().run(scenario)


def test_topics_of_one_request_are_checked_against_each_other():
    async def scenario(controller):
        results = await controller.create_topics(
            [NewTopic("a"), NewTopic("a"), NewTopic("b.c"), NewTopic("b_c")]
        )
        assert [result.name for result in results] == ["a", "b.c", "b_c"]
        assert codes(results) == [
            KafkaCode.INVALID_REQUEST,
            None,
            KafkaCode.INVALID_TOPIC_EXCEPTION,
        ]

    World().run(scenario)


def test_replicas_can_be_given():
    async def scenario(controller):
        (result,) = await controller.create_topics([NewTopic("a", assignments={1: [1], 0: [1]})])
        assert [partition.replicas for partition in result.state.partitions] == [(1,), (1,)]

    World().run(scenario)


def test_validating_changes_nothing():
    async def scenario(controller):
        (result,) = await controller.create_topics([NewTopic("a")], validate_only=True)
        assert result.state.name == "a"
        assert controller.image.topics == {}
        await controller.create_topics([NewTopic("a")])
        grown = await controller.create_partitions("a", 5, validate_only=True)
        assert len(grown.state.partitions) == 5
        change = [ConfigChange("retention.ms", "7")]
        changed = await controller.alter_topic_configs("a", change, validate_only=True)
        assert changed.overrides == {"retention.ms": "7"}
        await controller.alter_broker_configs(
            1, [ConfigChange("log.retention.ms", "7")], validate_only=True
        )
        topic = controller.image.topics["a"]
        assert (len(topic.partitions), topic.overrides) == (1, {})
        assert controller.effective_config.source("log.retention.ms") is Source.DEFAULT

    World().run(scenario)


def test_two_requests_for_one_name_make_one_topic():
    async def scenario(controller):
        both = await asyncio.gather(
            controller.create_topics([NewTopic("a")]), controller.create_topics([NewTopic("a")])
        )
        assert sorted(map(str, codes(both[0] + both[1]))) == ["36", "None"]

    World().run(scenario)


def test_a_failed_write_changes_nothing_that_others_see():
    async def scenario():
        world = World()
        controller = await world.start()
        await controller.create_topics([NewTopic("a")])
        controller._publisher.store.expire()
        with pytest.raises(KafkaError):
            await controller.create_topics([NewTopic("b")])
        with pytest.raises(KafkaError):
            await controller.delete_topics(["a"])
        with pytest.raises(KafkaError):
            await controller.create_partitions("a", 3)
        with pytest.raises(KafkaError):
            await controller.alter_topic_configs("a", [ConfigChange("retention.ms", "7")])
        topic = controller.image.topics["a"]
        assert list(controller.image.topics) == ["a"]
        assert (len(topic.partitions), topic.overrides) == (1, {})

    asyncio.run(scenario())


def test_a_deleted_topic_is_gone_and_its_name_free_for_another_id():
    async def scenario():
        world = World()
        controller = await world.start()
        (created,) = await controller.create_topics([NewTopic("a", partitions=2)])
        results = await controller.delete_topics(["a", "b", "a"])
        assert codes(results) == [None, KafkaCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert results[0].state is created.state
        assert controller.image.topics_by_id == {}
        assert (await world.start()).image.topics == {}
        (again,) = await controller.create_topics([NewTopic("a")])
        assert again.state.topic_id != created.state.topic_id

    asyncio.run(scenario())


def test_deletion_can_be_switched_off():
    async def scenario(controller):
        await controller.create_topics([NewTopic("a")])
        assert codes(await controller.delete_topics(["a"])) == [KafkaCode.TOPIC_DELETION_DISABLED]
        assert "a" in controller.image.topics

    World("delete.topic.enable=false").run(scenario)


def test_partitions_are_added_and_last():
    async def scenario():
        world = World()
        controller = await world.start()
        await controller.create_topics([NewTopic("a", partitions=2)])
        await world.start()
        result = await controller.create_partitions("a", 4, [[1], [1]])
        assert result.state is controller.image.topics["a"]
        assert len(result.state.partitions) == 4
        loaded = (await world.start()).image.topics["a"].partitions
        assert [partition.leader_epoch for partition in loaded] == [2, 2, 1, 1]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("name", "count", "assignments", "code"),
    [
        ("b", 5, None, KafkaCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("a", 2, None, KafkaCode.INVALID_PARTITIONS),
        ("a", 1, None, KafkaCode.INVALID_PARTITIONS),
        ("a", 4, [[1]], KafkaCode.INVALID_REPLICA_ASSIGNMENT),
        ("a", 3, [[9]], KafkaCode.INVALID_REPLICA_ASSIGNMENT),
        ("a", 3, [[1, 2]], KafkaCode.INVALID_REPLICA_ASSIGNMENT),
        ("a", 20_000, None, KafkaCode.POLICY_VIOLATION),
    ],
)
def test_partitions_that_cannot_be_added_get_kafkas_code(name, count, assignments, code):
    async def scenario(controller):
        await controller.create_topics([NewTopic("a", partitions=2)])
        result = await controller.create_partitions(name, count, assignments)
        assert codes([result]) == [code]
        assert len(controller.image.topics["a"].partitions) == 2

    World().run(scenario)


def test_options_of_a_topic_change_one_by_one_or_all_at_once_and_last():
    async def scenario():
        world = World()
        controller = await world.start()
        await controller.create_topics([NewTopic("a", configs={"retention.ms": "5"})])
        topic = await controller.alter_topic_configs(
            "a",
            [
                ConfigChange("cleanup.policy", "compact", ConfigOperation.APPEND),
                ConfigChange("retention.ms", None, ConfigOperation.DELETE),
                ConfigChange("segment.bytes", "20000"),
            ],
        )
        assert topic.overrides == {"cleanup.policy": "delete,compact", "segment.bytes": "20000"}
        await controller.alter_topic_configs(
            "a", [ConfigChange("cleanup.policy", "delete", ConfigOperation.SUBTRACT)]
        )
        assert topic.overrides["cleanup.policy"] == "compact"
        assert (await world.start()).image.topics["a"].overrides == topic.overrides
        await controller.replace_topic_configs("a", {"retention.ms": "9"})
        assert (await world.start()).image.topics["a"].overrides == {"retention.ms": "9"}

    asyncio.run(scenario())


@pytest.mark.parametrize("operation", [ConfigOperation.APPEND, ConfigOperation.SUBTRACT])
def test_a_long_list_is_changed_in_linear_time(operation):
    """A request may have 32 KB of it, and the list may be as long as former releases made it."""
    name = "leader.replication.throttled.replicas"
    present = [f"{number}:0" for number in range(80_000)]
    named = [f"{number}:1" for number in range(4_000)]

    async def scenario(controller):
        await controller.create_topics([NewTopic("a", configs={name: ",".join(present)})])
        change = ConfigChange(name, ",".join(named), operation)
        is_more = operation is ConfigOperation.APPEND
        refused = pytest.raises(KafkaError) if is_more else contextlib.nullcontext()
        began = time.thread_time()
        with refused:
            await controller.alter_topic_configs("a", [change])
        assert time.thread_time() - began < 1
        [topic] = controller.image.topics.values()
        assert topic.overrides[name] == ",".join(present)

    World().run(scenario)


def test_a_list_does_not_grow_longer_than_it_can_be_described():
    name = "leader.replication.throttled.replicas"

    async def scenario(controller):
        await controller.create_topics([NewTopic("a")])

        async def append(size: int) -> str:
            change = ConfigChange(name, "0" * (size - 2) + ":1", ConfigOperation.APPEND)
            topic = await controller.alter_topic_configs("a", [change])
            return topic.overrides[name]

        await append(30_000)
        with pytest.raises(KafkaError, match="would have 32768 bytes") as refused:
            await append(2_767)
        assert refused.value.code is KafkaCode.INVALID_CONFIG
        assert len(await append(2_766)) == 32_767

    World().run(scenario)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([ConfigChange("no.such", "1")], KafkaCode.INVALID_CONFIG),
        ([ConfigChange("retention.ms", "-5")], KafkaCode.INVALID_CONFIG),
        ([ConfigChange("retention.ms", None)], KafkaCode.INVALID_REQUEST),
        (
            [ConfigChange("retention.ms", "1", ConfigOperation.APPEND)],
            KafkaCode.INVALID_CONFIG,
        ),
        ([ConfigChange("retention.ms", "1")] * 2, KafkaCode.INVALID_REQUEST),
        (
            [
                ConfigChange("min.compaction.lag.ms", "9"),
                ConfigChange("max.compaction.lag.ms", "3"),
            ],
            KafkaCode.INVALID_CONFIG,
        ),
    ],
)
def test_wrong_options_of_a_topic_are_refused_together(changes, code):
    async def scenario(controller):
        await controller.create_topics([NewTopic("a")])
        with pytest.raises(KafkaError) as caught:
            await controller.alter_topic_configs("a", [ConfigChange("flush.ms", "1"), *changes])
        assert caught.value.code is code
        assert controller.image.topics["a"].overrides == {}
        with pytest.raises(KafkaError) as caught:
            await controller.alter_topic_configs("none", [])
        assert caught.value.code is KafkaCode.UNKNOWN_TOPIC_OR_PARTITION

    World().run(scenario)


def test_options_of_nodes_change_at_run_time_and_last():
    async def scenario():
        world = World("log.retention.ms=1")
        controller = await world.start()
        await controller.alter_broker_configs(None, [ConfigChange("log.retention.ms", "2")])
        assert controller.effective_config.int("log.retention.ms") == 2
        await controller.alter_broker_configs(1, [ConfigChange("log.retention.ms", "3")])
        assert controller.effective_config.int("log.retention.ms") == 3
        assert (await world.start()).effective_config.int("log.retention.ms") == 3
        await controller.alter_broker_configs(
            1, [ConfigChange("log.retention.ms", None, ConfigOperation.DELETE)]
        )
        assert controller.effective_config.int("log.retention.ms") == 2
        await controller.replace_broker_configs(None, {})
        assert (await world.start()).effective_config.int("log.retention.ms") == 1

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("name", "value"),
    [("num.partitions", "5"), ("log.retention.ms", "0"), ("no.such", "1"), ("listeners", "x")],
)
def test_options_that_need_a_restart_are_refused(name, value):
    async def scenario(controller):
        with pytest.raises(KafkaError) as caught:
            await controller.alter_broker_configs(1, [ConfigChange(name, value)])
        assert caught.value.code is KafkaCode.INVALID_REQUEST
        assert controller.image.broker_overrides == {}

    World().run(scenario)


@pytest.mark.parametrize(
    ("name", "value"), [("min.insync.replicas", "2"), ("unclean.leader.election.enable", "true")]
)
def test_options_that_a_cluster_has_once_are_set_for_all_nodes_only(name, value):
    async def scenario(controller):
        for change in (
            controller.alter_broker_configs(1, [ConfigChange(name, value)]),
            controller.alter_broker_configs(1, [ConfigChange(name, value)], validate_only=True),
            controller.replace_broker_configs(1, {name: value}),
        ):
            with pytest.raises(KafkaError, match="set it for all nodes") as caught:
                await change
            assert caught.value.code is KafkaCode.INVALID_CONFIG
        await controller.alter_broker_configs(None, [ConfigChange(name, value)])
        assert controller.image.broker_overrides[None] == {name: value}
        # One that an earlier version stored can be removed.
        controller.image.broker_overrides[1] = {name: value}
        deletion = ConfigChange(name, None, ConfigOperation.DELETE)
        await controller.alter_broker_configs(1, [deletion])
        assert controller.image.broker_overrides[1] == {}

    World().run(scenario)


def test_an_option_without_effect_is_reported_where_it_is_set(caplog):
    def warnings() -> list[str]:
        lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        caplog.clear()
        return lines

    async def scenario(controller):
        without_effect, works = {"preallocate": "true"}, {"retention.ms": "5"}
        await controller.create_topics([NewTopic("a", configs=without_effect)], validate_only=True)
        assert warnings() == []
        await controller.create_topics([NewTopic("a", configs={**without_effect, **works})])
        assert warnings() == ["topic a: preallocate: accepted, no effect"]
        # What is set already is not reported again.
        change = ConfigChange("compression.lz4.level", "3")
        await controller.alter_topic_configs("a", [change], validate_only=True)
        assert warnings() == []
        await controller.alter_topic_configs("a", [change])
        assert warnings() == ["topic a: compression.lz4.level: accepted, no effect"]
        await controller.replace_topic_configs("a", {"preallocate": "false"})
        assert warnings() == ["topic a: preallocate: accepted, no effect"]
        await controller.alter_broker_configs(None, [ConfigChange("num.io.threads", "4")])
        assert warnings() == ["all nodes: num.io.threads: accepted, no effect"]
        interval = ConfigChange("consumer.assignment.interval.ms", "2000")
        await controller.alter_named_configs(NamedResource.GROUP, "g", [interval])
        assert warnings() == ["group 'g': consumer.assignment.interval.ms: accepted, no effect"]
        await controller.alter_named_configs(
            NamedResource.GROUP, "g", [ConfigChange("consumer.session.timeout.ms", "50000")]
        )
        assert warnings() == []

    World().run(scenario)


@pytest.mark.parametrize("group_id", ["readers", "a/b ü", ".", "..", "%2F"])
def test_options_of_a_group_last_until_they_are_taken_back(group_id):
    async def scenario():
        world = World()
        controller = await world.start()
        name = "consumer.session.timeout.ms"
        await controller.alter_named_configs(
            NamedResource.GROUP, group_id, [ConfigChange(name, "50000")]
        )
        await controller.alter_named_configs(
            NamedResource.GROUP, group_id, [ConfigChange(name, "60000")], validate_only=True
        )
        controller = await world.start()
        assert controller.image.group_overrides == {group_id: {name: "50000"}}
        await controller.replace_named_configs(
            NamedResource.GROUP, group_id, {"consumer.heartbeat.interval.ms": "6000"}
        )
        overrides = controller.image.group_overrides[group_id]
        assert overrides == {"consumer.heartbeat.interval.ms": "6000"}
        await controller.replace_named_configs(NamedResource.GROUP, group_id, {})
        assert (await world.start()).image.group_overrides == {}

    asyncio.run(scenario())


def test_options_of_users_clients_and_addresses_outlast_the_node():
    async def scenario():
        world = World()
        controller = await world.start()
        wanted = {
            ClientEntity(user="a"): {"x": "1"},
            ClientEntity(user="", client_id=".."): {"x": "2", "y": "3"},
            ClientEntity(client_id="a/b*~ ü"): {"x": "4"},
            ClientEntity(ip="::1"): {"connection_creation_rate": "5"},
        }
        for entity, options in wanted.items():
            await controller.alter_client_entity(entity, options)
        await controller.alter_client_entity(ClientEntity(user="a"), {"z": "1", "x": None})
        wanted[ClientEntity(user="a")] = {"z": "1"}
        assert controller.image.client_entities.options == wanted
        controller = await world.start()
        assert controller.image.client_entities.options == wanted
        for entity, options in wanted.items():
            await controller.alter_client_entity(entity, dict.fromkeys(options))
        assert controller.image.client_entities.options == {}
        assert (await world.start()).image.client_entities.options == {}

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("consumer.session.timeout.ms", "44999"),
        ("consumer.session.timeout.ms", "60001"),
        ("consumer.session.timeout.ms", "soon"),
        ("consumer.heartbeat.interval.ms", "4999"),
        ("no.such", "1"),
    ],
)
def test_options_of_a_group_keep_the_bounds_of_the_node(name, value):
    async def scenario(controller):
        with pytest.raises(KafkaError) as caught:
            await controller.alter_named_configs(
                NamedResource.GROUP, "readers", [ConfigChange(name, value)]
            )
        assert caught.value.code is KafkaCode.INVALID_CONFIG
        assert controller.image.group_overrides == {}

    World().run(scenario)


def test_a_subscription_to_client_metrics_lasts_until_its_last_option_is_deleted():
    async def scenario():
        world = World()
        controller = await world.start()
        kind, name = NamedResource.CLIENT_METRICS, "slow producers/1"
        wanted = {"metrics": "org.apache.kafka.producer.", "match": "client_id=a.*"}
        await controller.replace_named_configs(kind, name, wanted)
        more = ConfigChange("metrics", "org.apache.kafka.consumer.", ConfigOperation.APPEND)
        await controller.alter_named_configs(kind, name, [more])
        controller = await world.start()
        both = "org.apache.kafka.producer.,org.apache.kafka.consumer."
        assert controller.image.client_metrics == {name: {**wanted, "metrics": both}}
        assert controller.image.group_overrides == {}
        gone = [ConfigChange(option, None, ConfigOperation.DELETE) for option in wanted]
        await controller.alter_named_configs(kind, name, gone)
        assert (await world.start()).image.client_metrics == {}

    asyncio.run(scenario())


def test_producer_ids_are_given_once_over_all_starts():
    async def scenario():
        world = World()
        blocks = []
        for _ in range(3):
            controller = await world.start()
            both = await asyncio.gather(
                controller.allocate_producer_ids(), controller.allocate_producer_ids()
            )
            blocks += both
        assert [block.start for block in blocks] == [0, 1000, 2000, 3000, 4000, 5000]
        assert {len(block) for block in blocks} == {1000}

    asyncio.run(scenario())
