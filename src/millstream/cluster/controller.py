"""The controller: owns the cluster image, and makes every change durable before it shows.

A change is decided by `changes` from the image, committed to the coordination store, and
only then put into the image; the caller applies what is returned. On one node the
controller runs inside the broker; its writes are version-checked all the same, because
in a cluster another one may have taken over.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from millstream.clock import Clock
from millstream.cluster import changes, znodes
from millstream.cluster.changes import ConfigChange, NewTopic
from millstream.cluster.coordination import (
    CoordinationFailed,
    CoordinationStore,
    Create,
    Delete,
    NoNode,
    Operation,
    Put,
)
from millstream.cluster.state import BrokerState, ClusterImage, TopicState
from millstream.config import BrokerConfig
from millstream.errors import KafkaCode, KafkaError
from millstream.model import NO_TOPIC_ID

log = logging.getLogger(__name__)

PRODUCER_ID_BLOCK: Final = 1_000
_PRODUCER_ID_END: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class TopicResult:
    """Either the error, or the topic as it now is (as it would be, when only validated)."""

    name: str
    error: KafkaError | None = None
    state: TopicState | None = None


class Controller:
    """`config` is what was loaded at the start; `effective_config` knows run-time changes too."""

    def __init__(
        self,
        store: CoordinationStore,
        config: BrokerConfig,
        *,
        broker_id: int,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
        cluster_id: str | None = None,
    ) -> None:
        self.image = ClusterImage()
        self.effective_config = config
        self._store = store
        self._config = config
        self._broker_id = broker_id
        self._clock = clock
        self._random_bytes = random_bytes
        self._wanted_cluster_id = cluster_id
        self._controller_epoch = 0
        # A change waits for the disk between its decision and its effect; a second one
        # decided meanwhile would be decided on what is about to be untrue.
        self._changing = asyncio.Lock()

    async def start(self) -> None:
        """Load the image, and raise every leader epoch in one durable transaction.

        A power cut may have taken records that consumers have read. With a new epoch
        before the first append, they are told that the log was cut, and skip nothing.
        """
        await self._create_base()
        self.image = await load_image(self._store)
        self.image.controller_id = self._broker_id
        self.image.brokers[self._broker_id] = BrokerState(self._broker_id)
        self._refresh_config()
        await self._raise_epochs()

    async def register_broker(self, broker: BrokerState) -> None:
        """Announce this node under its addresses, once they are known."""
        path = znodes.broker_path(broker.id)
        data = znodes.encode_broker(broker, self._clock.now_ms())
        async with self._changing:
            operation: Operation = Create(path, data, is_ephemeral=True)
            if await self._store.exists(path):
                operation = Put(path, data)
            await self._write([operation])
            self.image.brokers[broker.id] = broker

    async def create_topics(
        self, wanted: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[TopicResult]:
        """One result for each, in order; what is valid is created in one transaction."""
        async with self._changing:
            results = self._decide_topics(wanted)
            created = [result.state for result in results if result.state is not None]
            if validate_only or not created:
                return results
            operations = [
                operation
                for topic in created
                for operation in znodes.create_topic(topic, controller_epoch=self._controller_epoch)
            ]
            await self._write(operations)
            for topic in created:
                self.image.add_topic(topic)
                log.info(
                    "created topic %s id=%s partitions=%d",
                    topic.name,
                    znodes.encode_uuid(topic.topic_id),
                    len(topic.partitions),
                )
            return results

    async def delete_topics(self, names: Sequence[str]) -> list[TopicResult]:
        """One result for each, with the topic as it last was."""
        async with self._changing:
            results = [self._decide_deletion(name) for name in dict.fromkeys(names)]
            deleted = [result.state for result in results if result.state is not None]
            if deleted:
                await self._write(
                    [operation for topic in deleted for operation in znodes.delete_topic(topic)]
                )
            for topic in deleted:
                self.image.remove_topic(topic.name)
                log.info("deleted topic %s id=%s", topic.name, znodes.encode_uuid(topic.topic_id))
            return results

    async def create_partitions(
        self,
        name: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None = None,
        *,
        validate_only: bool = False,
    ) -> TopicResult:
        """Bring a topic to `count` partitions; `assignments` are for the new ones only."""
        async with self._changing:
            try:
                assigned = changes.assign_added_partitions(self.image, name, count, assignments)
            except KafkaError as error:
                return TopicResult(name, error=error)
            present = self.image.topics[name]
            added = changes.new_partitions(assigned)
            grown = TopicState(
                name, present.topic_id, present.partitions + added, present.overrides
            )
            if validate_only:
                return TopicResult(name, state=grown)
            await self._write(
                [
                    Put(znodes.topic_path(name), znodes.encode_topic(grown)),
                    *znodes.create_partitions(
                        grown, len(present.partitions), controller_epoch=self._controller_epoch
                    ),
                ]
            )
            present.partitions.extend(added)
            log.info("topic %s has %d partitions now", name, count)
            return TopicResult(name, state=present)

    async def alter_topic_configs(
        self, name: str, altered: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> TopicState:
        """IncrementalAlterConfigs on a topic. Raises KafkaError."""
        async with self._changing:
            topic = self._topic(name)
            overrides = changes.changed_topic_overrides(
                self.effective_config, topic.overrides, altered
            )
            return await self._store_topic_overrides(topic, overrides, validate_only)

    async def replace_topic_configs(
        self, name: str, configs: dict[str, str | None], *, validate_only: bool = False
    ) -> TopicState:
        """AlterConfigs on a topic: what is not named goes back to the default."""
        async with self._changing:
            topic = self._topic(name)
            overrides = changes.check_overrides(self.effective_config, configs)
            return await self._store_topic_overrides(topic, overrides, validate_only)

    async def alter_broker_configs(
        self, broker_id: int | None, altered: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> None:
        """IncrementalAlterConfigs on a node, or on all with None. Raises KafkaError."""
        async with self._changing:
            present = self.image.broker_overrides.get(broker_id, {})
            overrides = changes.changed_broker_overrides(present, altered)
            await self._store_broker_overrides(broker_id, overrides, validate_only)

    async def replace_broker_configs(
        self, broker_id: int | None, configs: dict[str, str | None], *, validate_only: bool = False
    ) -> None:
        """AlterConfigs on a node: what is not named goes back to what it was started with."""
        async with self._changing:
            wanted = [ConfigChange(name, value) for name, value in configs.items()]
            overrides = changes.changed_broker_overrides({}, wanted)
            await self._store_broker_overrides(broker_id, overrides, validate_only)

    async def alter_group_configs(
        self, group_id: str, altered: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> None:
        """IncrementalAlterConfigs on a group. Raises KafkaError."""
        async with self._changing:
            present = self.image.group_overrides.get(group_id, {})
            overrides = changes.changed_group_overrides(self.effective_config, present, altered)
            await self._store_group_overrides(group_id, overrides, validate_only)

    async def replace_group_configs(
        self, group_id: str, configs: dict[str, str | None], *, validate_only: bool = False
    ) -> None:
        """AlterConfigs on a group: what is not named goes back to the node's."""
        async with self._changing:
            wanted = [ConfigChange(name, value) for name, value in configs.items()]
            overrides = changes.changed_group_overrides(self.effective_config, {}, wanted)
            await self._store_group_overrides(group_id, overrides, validate_only)

    async def allocate_producer_ids(self) -> range:
        """A block of ids that nobody had and nobody else will get."""
        async with self._changing:
            try:
                node = await self._store.get(znodes.PRODUCER_IDS)
            except NoNode:
                block = range(PRODUCER_ID_BLOCK)
                data = znodes.encode_producer_block(self._broker_id, block)
                await self._write([Create(znodes.PRODUCER_IDS, data)])
                return block
            start = znodes.decode_producer_block(node).stop
            assert start + PRODUCER_ID_BLOCK < _PRODUCER_ID_END, "producer ids are used up"
            block = range(start, start + PRODUCER_ID_BLOCK)
            data = znodes.encode_producer_block(self._broker_id, block)
            await self._write([Put(znodes.PRODUCER_IDS, data, node.version)])
            return block

    async def _create_base(self) -> None:
        exists = self._store.exists
        operations: list[Operation] = [
            Create(path) for path in znodes.BASE_PATHS if not await exists(path)
        ]
        if not await exists(znodes.CLUSTER_ID):
            cluster_id = self._wanted_cluster_id or znodes.encode_uuid(self._new_id())
            data = znodes.encode_cluster_id(cluster_id)
            operations.append(Create(znodes.CLUSTER_ID, data))
        if not await exists(znodes.CONTROLLER_EPOCH):
            operations.append(Create(znodes.CONTROLLER_EPOCH, b"0"))
        if operations:
            await self._store.commit(operations)

    async def _raise_epochs(self) -> None:
        node = await self._store.get(znodes.CONTROLLER_EPOCH)
        self._controller_epoch = int(node.data) + 1
        operations: list[Operation] = [
            Put(znodes.CONTROLLER_EPOCH, str(self._controller_epoch).encode(), node.version)
        ]
        raised = []
        for topic in self.image.topics.values():
            for number, partition in enumerate(topic.partitions):
                path = znodes.partition_state_path(topic.name, number)
                partition.leader_epoch += 1
                if self._broker_id in partition.isr:
                    partition.leader = self._broker_id
                data = znodes.encode_partition(partition, self._controller_epoch, topic.topic_id)
                operations.append(Put(path, data, partition.version))
                raised.append(partition)
        versions = await self._store.commit(operations)
        for partition, version in zip(raised, versions[1:], strict=True):
            partition.version = version

    async def _write(self, operations: Sequence[Operation]) -> list[int]:
        """Commit a change that a client asked for: it hears of a full or failed disk."""
        try:
            return await self._store.commit(operations)
        except CoordinationFailed as error:
            raise KafkaError(KafkaCode.KAFKA_STORAGE_ERROR, str(error)) from error

    def _decide_topics(self, wanted: Sequence[NewTopic]) -> list[TopicResult]:
        counts: dict[str, int] = {}
        for new in wanted:
            counts[new.name] = counts.get(new.name, 0) + 1
        # Names of this request collide with each other too, so they join a scratch image.
        scratch = ClusterImage(brokers=self.image.brokers, topics=dict(self.image.topics))
        results = []
        for name, count in counts.items():
            new = next(new for new in wanted if new.name == name)
            try:
                if count > 1:
                    raise KafkaError(KafkaCode.INVALID_REQUEST, f"topic {name} is named twice")
                topic = self._decide_topic(scratch, new)
                scratch.add_topic(topic)
                results.append(TopicResult(name, state=topic))
            except KafkaError as error:
                results.append(TopicResult(name, error=error))
        return results

    def _decide_topic(self, image: ClusterImage, wanted: NewTopic) -> TopicState:
        changes.check_topic_name(image, wanted.name)
        overrides = changes.check_overrides(self.effective_config, wanted.configs)
        assigned = changes.assign_new_topic(image, self.effective_config, wanted)
        return TopicState(wanted.name, self._new_id(), changes.new_partitions(assigned), overrides)

    def _decide_deletion(self, name: str) -> TopicResult:
        if not self.effective_config.boolean("delete.topic.enable"):
            error = KafkaError(KafkaCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
            return TopicResult(name, error=error)
        topic = self.image.topics.get(name)
        if topic is None:
            return TopicResult(name, error=changes.unknown_topic(name))
        return TopicResult(name, state=topic)

    async def _store_topic_overrides(
        self, topic: TopicState, overrides: dict[str, str], validate_only: bool
    ) -> TopicState:
        if validate_only:
            return TopicState(topic.name, topic.topic_id, topic.partitions, overrides)
        data = znodes.encode_config(overrides)
        await self._write([Put(znodes.topic_config_path(topic.name), data)])
        topic.overrides = overrides
        log.info("topic %s options=%s", topic.name, overrides)
        return topic

    async def _store_broker_overrides(
        self, broker_id: int | None, overrides: dict[str, str], validate_only: bool
    ) -> None:
        if validate_only:
            return
        await self._write_config(znodes.broker_config_path(broker_id), overrides)
        self.image.broker_overrides[broker_id] = overrides
        self._refresh_config()
        whose = "all nodes" if broker_id is None else f"node {broker_id}"
        log.info("options of %s changed: %s", whose, ", ".join(overrides) or "none set")

    async def _store_group_overrides(
        self, group_id: str, overrides: dict[str, str], validate_only: bool
    ) -> None:
        if validate_only:
            return
        path = znodes.group_config_path(group_id)
        if overrides:
            await self._write_config(path, overrides)
            self.image.group_overrides[group_id] = overrides
        elif group_id in self.image.group_overrides:
            await self._write([Delete(path)])
            del self.image.group_overrides[group_id]
        log.info("options of group %r: %s", group_id, overrides or "none set")

    async def _write_config(self, path: str, overrides: dict[str, str]) -> None:
        data = znodes.encode_config(overrides)
        operation: Operation = Create(path, data)
        if await self._store.exists(path):
            operation = Put(path, data)
        await self._write([operation])

    def _refresh_config(self) -> None:
        overrides = self.image.broker_overrides
        self.effective_config = self._config.with_dynamic(
            overrides.get(self._broker_id, {}), overrides.get(None, {})
        )

    def _topic(self, name: str) -> TopicState:
        topic = self.image.topics.get(name)
        if topic is None:
            raise changes.unknown_topic(name)
        return topic

    def _new_id(self) -> UUID:
        """A random id whose 22 characters do not begin with "-", which tools take for a flag."""
        while True:
            new = UUID(bytes=self._random_bytes(16), version=4)
            if new != NO_TOPIC_ID and not znodes.encode_uuid(new).startswith("-"):
                return new


async def load_image(store: CoordinationStore) -> ClusterImage:
    """The image as the store has it; the nodes' base paths must exist."""
    image = ClusterImage()
    image.cluster_id = znodes.decode_cluster_id(await store.get(znodes.CLUSTER_ID))
    topics = await store.tree(znodes.TOPICS)
    configs = await store.tree(znodes.TOPIC_CONFIGS)
    for topic in znodes.decode_topics(topics, configs):
        image.add_topic(topic)
    for path, node in (await store.tree(znodes.BROKERS)).items():
        broker = znodes.decode_broker(int(path.rpartition("/")[2]), node)
        image.brokers[broker.id] = broker
    for path, node in (await store.tree(znodes.BROKER_CONFIGS)).items():
        name = path.rpartition("/")[2]
        broker_id = None if name == znodes.DEFAULT_BROKER else int(name)
        image.broker_overrides[broker_id] = znodes.decode_config(node)
    for path, node in (await store.tree(znodes.GROUP_CONFIGS)).items():
        image.group_overrides[znodes.group_of_config_path(path)] = znodes.decode_config(node)
    return image
