"""The cluster's metadata on one node: the image, the options in force, and the changes that
clients request: topics, partitions, options, blocks of producer ids.

`changes` decides a change from the image. The change is committed to the coordination
store, and only then put into the image; the caller applies what is returned.

A standalone node writes alone. In a cluster every node may get the request: its writes go
through a `Publisher`, which checks that the node's incarnation is current, and if another
node changed the same thing at the same moment, the change is decided again.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar
from uuid import UUID

from millstream.cluster import acls, changes, znodes
from millstream.cluster.changes import ConfigChange, NewTopic
from millstream.cluster.client_entities import ClientEntity
from millstream.cluster.publisher import Publisher, StandalonePublisher
from millstream.cluster.state import (
    BrokerState,
    ClusterImage,
    NamedResource,
    PartitionState,
    TopicState,
)
from millstream.cluster.stores.store import (
    CoordinationStore,
    Create,
    NoNode,
    NotApplied,
    Operation,
    Put,
)
from millstream.config import (
    BROKER_OPTIONS,
    TOPIC_OPTIONS,
    BrokerConfig,
    Option,
    set_without_effect,
    topic_config,
)
from millstream.errors import KafkaCode, KafkaError
from millstream.lazy_dataclass import dataclass
from millstream.model import NO_TOPIC_ID
from millstream.security.acl import Binding, BindingFilter
from millstream.security.delegation import DelegationToken

log = logging.getLogger(__name__)

PRODUCER_ID_BLOCK: Final = 1_000
_PRODUCER_ID_END: Final = 2**63 - 1
# Each lost attempt means that another node's change succeeded.
_ATTEMPTS: Final = 10
# Topics that are decided on before others may use the loop.
_DECIDED_AT_ONCE_MAX: Final = 50
_REFUSED_AT_ONCE_MAX: Final = 500

# As the log calls them.
_NAMED: Final = {
    NamedResource.GROUP: "group",
    NamedResource.CLIENT_METRICS: "subscription to client metrics",
}

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class TopicResult:
    """Either the error, or the topic after the change (also when it is only validated)."""

    name: str
    error: KafkaError | None = None
    state: TopicState | None = None


class ClusterMetadata:
    """`config` was loaded at the start; `effective_config` includes run-time changes."""

    def __init__(
        self,
        publisher: Publisher,
        config: BrokerConfig,
        *,
        broker_id: int,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._publisher = publisher
        self._config = config
        self._effective_config = config
        self._effective_for: list[dict[str, str]] = []
        self._broker_id = broker_id
        self._random_bytes = random_bytes
        # A change waits for the disk between its decision and its effect; a second one decided
        # in the meantime would be based on outdated state.
        self._changing = asyncio.Lock()

    @property
    def image(self) -> ClusterImage:
        return self._publisher.image

    @property
    def effective_config(self) -> BrokerConfig:
        """The options in force on this node."""
        overrides = self.image.broker_overrides
        changed = [overrides.get(self._broker_id, {}), overrides.get(None, {})]
        if changed != self._effective_for:
            self._effective_for = changed
            self._effective_config = self._config.with_dynamic(*changed)
        return self._effective_config

    async def create_topics(
        self, wanted: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[TopicResult]:
        """One result for each, in order; valid topics are created."""

        async def change() -> list[TopicResult]:
            try:
                changes.check_total_partitions(self.effective_config, wanted)
            except KafkaError as error:
                return await _refused(wanted, error)
            results = await self._decide_topics(wanted)
            created = [result.state for result in results if result.state is not None]
            if not validate_only and created:
                await self._publisher.create(created)
                for topic in created:
                    log.info(
                        "created topic %s id=%s partitions=%d",
                        topic.name,
                        znodes.encode_uuid(topic.topic_id),
                        len(topic.partitions),
                    )
                    _warn_without_effect(f"topic {topic.name}", TOPIC_OPTIONS, {}, topic.overrides)
            return results

        return await self._decided(change)

    async def delete_topics(self, names: Sequence[str]) -> list[TopicResult]:
        """One result for each, with the topic's last state."""

        async def change() -> list[TopicResult]:
            results = [self._decide_deletion(name) for name in dict.fromkeys(names)]
            deleted = [result.state for result in results if result.state is not None]
            if deleted:
                await self._publisher.delete(deleted)
            for topic in deleted:
                log.info("deleted topic %s id=%s", topic.name, znodes.encode_uuid(topic.topic_id))
            return results

        return await self._decided(change)

    async def create_partitions(
        self,
        name: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None = None,
        *,
        validate_only: bool = False,
    ) -> TopicResult:
        """Extend a topic to `count` partitions; `assignments` are for the new ones only."""

        async def change() -> TopicResult:
            try:
                assigned = changes.assign_added_partitions(self.image, name, count, assignments)
            except KafkaError as error:
                return TopicResult(name, error=error.kept())
            present = self.image.topics[name]
            added = self._new_partitions(assigned, present.overrides)
            if validate_only:
                grown = replace(present, partitions=present.partitions + added)
                return TopicResult(name, state=grown)
            await self._publisher.grow(present, added)
            log.info("topic %s has %d partitions now", name, count)
            return TopicResult(name, state=self.image.topics.get(name, present))

        return await self._decided(change)

    async def alter_topic_configs(
        self, name: str, altered: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> TopicState:
        """IncrementalAlterConfigs on a topic. Raises KafkaError."""

        async def change() -> TopicState:
            topic = self._topic(name)
            overrides = changes.changed_topic_overrides(
                self.effective_config, topic.overrides, altered
            )
            return await self._store_topic_overrides(topic, overrides, validate_only)

        return await self._decided(change)

    async def replace_topic_configs(
        self, name: str, configs: dict[str, str | None], *, validate_only: bool = False
    ) -> TopicState:
        """AlterConfigs on a topic: options that are not named return to the default."""

        async def change() -> TopicState:
            topic = self._topic(name)
            overrides = changes.check_overrides(self.effective_config, configs)
            return await self._store_topic_overrides(topic, overrides, validate_only)

        return await self._decided(change)

    async def alter_broker_configs(
        self, broker_id: int | None, altered: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> None:
        """IncrementalAlterConfigs on a node, or on all with None. Raises KafkaError."""

        async def change() -> None:
            present = self.image.broker_overrides.get(broker_id, {})
            overrides = changes.changed_broker_overrides(broker_id, present, altered)
            await self._store_broker_overrides(broker_id, overrides, validate_only)

        await self._decided(change)

    async def replace_broker_configs(
        self, broker_id: int | None, configs: dict[str, str | None], *, validate_only: bool = False
    ) -> None:
        """AlterConfigs on a node: options that are not named return to their start values."""

        async def change() -> None:
            wanted = [ConfigChange(name, value) for name, value in configs.items()]
            overrides = changes.changed_broker_overrides(broker_id, {}, wanted)
            await self._store_broker_overrides(broker_id, overrides, validate_only)

        await self._decided(change)

    async def alter_named_configs(
        self,
        kind: NamedResource,
        name: str,
        altered: Sequence[ConfigChange],
        *,
        validate_only: bool = False,
    ) -> None:
        """IncrementalAlterConfigs on a group or a subscription. Raises KafkaError."""

        async def change() -> None:
            present = self.image.named_overrides[kind].get(name, {})
            overrides = changes.changed_named_overrides(
                kind, self.effective_config, present, altered
            )
            await self._store_named_overrides(kind, name, overrides, validate_only)

        await self._decided(change)

    async def replace_named_configs(
        self,
        kind: NamedResource,
        name: str,
        configs: dict[str, str | None],
        *,
        validate_only: bool = False,
    ) -> None:
        """AlterConfigs on a group or a subscription: options that are not named return to the
        node's, or to their defaults."""

        async def change() -> None:
            wanted = [ConfigChange(option, value) for option, value in configs.items()]
            overrides = changes.changed_named_overrides(kind, self.effective_config, {}, wanted)
            await self._store_named_overrides(kind, name, overrides, validate_only)

        await self._decided(change)

    async def alter_client_entity(
        self, entity: ClientEntity, altered: Mapping[str, str | None]
    ) -> None:
        """Set options of a user, a client id or an address; None removes one. The caller has
        checked them. Raises KafkaError."""

        async def change() -> None:
            present = self.image.client_entities.options_of(entity)
            merged = {**present, **altered}
            options = {name: value for name, value in merged.items() if value is not None}
            if options == present:
                return
            await self._publisher.set_entity_options(entity, options)
            # Only the names: a value may be a credential.
            log.info("options of %s changed: %s", entity, ", ".join(sorted(altered)))

        await self._decided(change)

    async def create_acls(self, bindings: Sequence[Binding]) -> None:
        """The caller has checked them. Raises KafkaError."""

        async def change() -> None:
            await self._publisher.set_acls(acls.added(self.image.acls, bindings))

        await self._decided(change)

    async def delete_acls(self, filters: Sequence[BindingFilter]) -> list[list[Binding]]:
        """Delete what the filters select; returns it, for each of them. Raises KafkaError."""

        async def change() -> list[list[Binding]]:
            found = acls.selected(self.image.acls, filters)
            gone = [binding for some in found for binding in some]
            await self._publisher.set_acls(acls.removed(self.image.acls, gone))
            return found

        return await self._decided(change)

    async def change_token(
        self,
        token_id: str,
        decide: Callable[[DelegationToken | None], DelegationToken | None],
    ) -> DelegationToken | None:
        """Put what `decide` makes of a delegation token in its place. Raises KafkaError."""

        async def change() -> DelegationToken | None:
            present = self.image.delegation_tokens.tokens.get(token_id)
            decided = decide(present)
            if decided != present:
                await self._publisher.set_token(token_id, decided)
            return decided

        return await self._decided(change)

    async def allocate_producer_ids(self) -> range:
        """A block of ids that is handed out only once."""
        return await self._decided(self._next_producer_block)

    async def _next_producer_block(self) -> range:
        try:
            node = await self._publisher.get(znodes.PRODUCER_IDS)
        except NoNode:
            block = range(PRODUCER_ID_BLOCK)
            data = znodes.encode_producer_block(self._broker_id, block)
            await self._publisher.write([Create(znodes.PRODUCER_IDS, data)])
            return block
        start = znodes.decode_producer_block(node).stop
        assert start + PRODUCER_ID_BLOCK < _PRODUCER_ID_END, "producer ids are exhausted"
        block = range(start, start + PRODUCER_ID_BLOCK)
        data = znodes.encode_producer_block(self._broker_id, block)
        await self._publisher.write([Put(znodes.PRODUCER_IDS, data, node.version)])
        return block

    async def _decided(self, change: Callable[[], Awaitable[_Result]]) -> _Result:
        """Decide and write; if another node was faster, decide again on what it wrote."""
        async with self._changing:
            for _ in range(_ATTEMPTS):
                try:
                    return await change()
                except NotApplied as problem:
                    log.info("decided again: %s was changed at the same moment", problem.path)
                    await self._publisher.catch_up()
        raise KafkaError(KafkaCode.REQUEST_TIMED_OUT, "too much is changed at the same moment")

    async def _decide_topics(self, wanted: Sequence[NewTopic]) -> list[TopicResult]:
        counts = Counter(new.name for new in wanted)
        # Names of this request collide with each other, too.
        taken = {changes.flat_name(name): name for name in self.image.topics}
        results = []
        for number, (name, new) in enumerate({new.name: new for new in wanted}.items(), 1):
            try:
                if counts[name] > 1:
                    raise KafkaError(KafkaCode.INVALID_REQUEST, f"topic {name} is named twice")
                topic = self._decide_topic(taken, new)
                taken[changes.flat_name(name)] = name
                results.append(TopicResult(name, state=topic))
            except KafkaError as error:
                results.append(TopicResult(name, error=error.kept()))
            if number % _DECIDED_AT_ONCE_MAX == 0:
                await asyncio.sleep(0)
        return results

    def _decide_topic(self, taken: Mapping[str, str], wanted: NewTopic) -> TopicState:
        changes.check_topic_name(taken, wanted.name)
        overrides = changes.check_overrides(self.effective_config, wanted.configs)
        assigned = changes.assign_new_topic(self.image, self.effective_config, wanted)
        partitions = self._new_partitions(assigned, overrides)
        return TopicState(wanted.name, self._new_id(), partitions, overrides)

    def _new_partitions(
        self, assigned: Sequence[tuple[int, ...]], overrides: dict[str, str]
    ) -> list[PartitionState]:
        min_isr = topic_config(self.effective_config, overrides).int("min.insync.replicas")
        return [self._publisher.new_partition(each, min_isr=min_isr) for each in assigned]

    def _decide_deletion(self, name: str) -> TopicResult:
        if not self.effective_config.boolean("delete.topic.enable"):
            error = KafkaError(KafkaCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
            return TopicResult(name, error=error.kept())
        topic = self.image.topics.get(name)
        if topic is None:
            return TopicResult(name, error=changes.unknown_topic(name))
        return TopicResult(name, state=topic)

    async def _store_topic_overrides(
        self, topic: TopicState, overrides: dict[str, str], validate_only: bool
    ) -> TopicState:
        if validate_only:
            return TopicState(topic.name, topic.topic_id, topic.partitions, overrides)
        present = topic.overrides
        await self._publisher.set_topic_options(topic, overrides)
        log.info("topic %s options=%s", topic.name, overrides)
        _warn_without_effect(f"topic {topic.name}", TOPIC_OPTIONS, present, overrides)
        return self.image.topics.get(topic.name, topic)

    async def _store_broker_overrides(
        self, broker_id: int | None, overrides: dict[str, str], validate_only: bool
    ) -> None:
        if validate_only:
            return
        present = self.image.broker_overrides.get(broker_id, {})
        await self._publisher.set_broker_options(broker_id, overrides)
        whose = "all nodes" if broker_id is None else f"node {broker_id}"
        log.info("options of %s changed: %s", whose, ", ".join(overrides) or "none set")
        _warn_without_effect(whose, BROKER_OPTIONS, present, overrides)

    async def _store_named_overrides(
        self, kind: NamedResource, name: str, overrides: dict[str, str], validate_only: bool
    ) -> None:
        if validate_only:
            return
        present = self.image.named_overrides[kind].get(name, {})
        await self._publisher.set_named_options(kind, name, overrides)
        whose = f"{_NAMED[kind]} {name!r}"
        log.info("options of %s: %s", whose, overrides or "none set")
        _warn_without_effect(whose, changes.NAMED_OPTIONS[kind], present, overrides)

    def _topic(self, name: str) -> TopicState:
        topic = self.image.topics.get(name)
        if topic is None:
            raise changes.unknown_topic(name)
        return topic

    def _new_id(self) -> UUID:
        return new_id(self._random_bytes)


async def _refused(wanted: Sequence[NewTopic], error: KafkaError) -> list[TopicResult]:
    """The same error for each name, of which there may be many."""
    results: dict[str, TopicResult] = {}
    for number, new in enumerate(wanted, 1):
        results[new.name] = TopicResult(new.name, error=error.kept())
        if number % _REFUSED_AT_ONCE_MAX == 0:
            await asyncio.sleep(0)
    return list(results.values())


def _warn_without_effect(
    whose: str,
    options: Mapping[str, Option],
    present: Mapping[str, str],
    overrides: Mapping[str, str],
) -> None:
    for note in set_without_effect(options, present, overrides):
        log.warning("%s: %s", whose, note)


def new_id(random_bytes: Callable[[int], bytes]) -> UUID:
    """A random id whose 22 characters do not begin with "-", which tools take for a flag."""
    while True:
        new = UUID(bytes=random_bytes(16), version=4)
        if new != NO_TOPIC_ID and not znodes.encode_uuid(new).startswith("-"):
            return new


async def start_alone(
    store: CoordinationStore,
    *,
    broker_id: int,
    random_bytes: Callable[[int], bytes],
    cluster_id: str | None = None,
) -> StandalonePublisher:
    """Load the image, and raise every leader epoch in one durable transaction.

    A power cut may have removed records that consumers have read. With a new epoch before
    the first append, consumers notice that the log was cut, and skip nothing.
    """
    missing: list[Operation] = [
        Create(path) for path in znodes.BASE_PATHS if not await store.exists(path)
    ]
    if not await store.exists(znodes.CLUSTER_ID):
        new_cluster_id = cluster_id or znodes.encode_uuid(new_id(random_bytes))
        missing.append(Create(znodes.CLUSTER_ID, znodes.encode_cluster_id(new_cluster_id)))
    if not await store.exists(znodes.CONTROLLER_EPOCH):
        missing.append(Create(znodes.CONTROLLER_EPOCH, b"0"))
    if missing:
        await store.commit(missing)
    alone = StandalonePublisher(store)
    alone.image = await load_image(store)
    alone.image.controller_id = broker_id
    alone.image.brokers[broker_id] = BrokerState(broker_id)
    alone.controller_epoch = await _raise_epochs(store, alone.image, broker_id)
    return alone


async def _raise_epochs(store: CoordinationStore, image: ClusterImage, broker_id: int) -> int:
    node = await store.get(znodes.CONTROLLER_EPOCH)
    epoch = int(node.data) + 1
    operations: list[Operation] = [Put(znodes.CONTROLLER_EPOCH, str(epoch).encode(), node.version)]
    raised = []
    for topic in image.topics.values():
        for number, partition in enumerate(topic.partitions):
            partition.leader_epoch += 1
            if broker_id in partition.isr:
                partition.leader = broker_id
            path = znodes.partition_state_path(topic.name, number)
            data = znodes.encode_partition(partition, epoch, topic.topic_id)
            operations.append(Put(path, data, partition.version))
            raised.append(partition)
    versions = await store.commit(operations)
    for partition, version in zip(raised, versions[1:], strict=True):
        partition.version = version
    return epoch


async def load_image(store: CoordinationStore) -> ClusterImage:
    """The image as the store has it; the base paths must exist."""
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
    for kind, root in znodes.NAMED_CONFIGS.items():
        for path, node in (await store.tree(root)).items():
            name = znodes.name_of_config_path(kind, path)
            image.named_overrides[kind][name] = znodes.decode_config(node)
    entities: dict[ClientEntity, dict[str, str]] = {}
    for root in znodes.ENTITY_CONFIGS:
        entities.update(znodes.decode_entities(await store.tree(root)))
    image.client_entities.replace(entities)
    image.delegation_tokens.replace(znodes.decode_tokens(await store.tree(znodes.TOKENS)))
    for root in (znodes.LITERAL_ACLS, znodes.PREFIXED_ACLS):
        image.acls.apply(znodes.decode_all_acls(await store.tree(root)))
    return image
