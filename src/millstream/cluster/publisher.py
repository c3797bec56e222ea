"""Writes a decided change into the coordination store and into the image.

`StandalonePublisher` serves a standalone node: no other node writes, so every change is one
transaction, and the image is the node's own. A member of a cluster has `member_publisher`.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from millstream.cluster import znodes
from millstream.cluster.acls import AclChanges
from millstream.cluster.client_entities import ClientEntity
from millstream.cluster.state import ClusterImage, NamedResource, PartitionState, TopicState
from millstream.cluster.stores.store import (
    CoordinationFailed,
    CoordinationStore,
    Create,
    Delete,
    Node,
    Operation,
    Put,
    parent_of,
)
from millstream.errors import KafkaCode, KafkaError
from millstream.security.delegation import DelegationToken


class Publisher(Protocol):
    """Every method raises KafkaError if nothing could be written, and NotApplied if another
    node was faster: then `catch_up`, and decide again."""

    @property
    def image(self) -> ClusterImage: ...

    def new_partition(self, replicas: tuple[int, ...], *, min_isr: int) -> PartitionState: ...

    async def create(self, topics: Sequence[TopicState]) -> None: ...

    async def delete(self, topics: Sequence[TopicState]) -> None: ...

    async def grow(self, topic: TopicState, added: Sequence[PartitionState]) -> None: ...

    async def set_topic_options(self, topic: TopicState, overrides: dict[str, str]) -> None: ...

    async def set_broker_options(
        self, broker_id: int | None, overrides: dict[str, str]
    ) -> None: ...

    async def set_named_options(
        self, kind: NamedResource, name: str, overrides: dict[str, str]
    ) -> None:
        """No overrides at all delete the resource's znode."""
        ...

    async def set_entity_options(self, entity: ClientEntity, options: dict[str, str]) -> None: ...

    async def set_token(self, token_id: str, token: DelegationToken | None) -> None:
        """None deletes it."""
        ...

    async def set_acls(self, changes: AclChanges) -> None: ...

    async def get(self, path: str) -> Node:
        """Raises NoNode."""
        ...

    async def write(self, operations: Sequence[Operation]) -> None: ...

    async def catch_up(self) -> None: ...


class StandalonePublisher:
    """The image and the store of a single node."""

    def __init__(self, store: CoordinationStore) -> None:
        self.store = store
        self.image = ClusterImage()
        self.controller_epoch = 0

    def new_partition(self, replicas: tuple[int, ...], *, min_isr: int) -> PartitionState:
        return PartitionState(
            leader=replicas[0], leader_epoch=0, isr=replicas, replicas=replicas, version=0
        )

    async def create(self, topics: Sequence[TopicState]) -> None:
        epoch = self.controller_epoch
        await self.write(
            [
                each
                for topic in topics
                for each in znodes.create_topic(topic, controller_epoch=epoch)
            ]
        )
        for topic in topics:
            self.image.add_topic(topic)

    async def delete(self, topics: Sequence[TopicState]) -> None:
        await self.write([each for topic in topics for each in znodes.delete_topic(topic)])
        for topic in topics:
            self.image.remove_topic(topic.name)

    async def grow(self, topic: TopicState, added: Sequence[PartitionState]) -> None:
        grown = replace(topic, partitions=[*topic.partitions, *added])
        first = len(topic.partitions)
        await self.write(
            [
                Put(znodes.topic_path(topic.name), znodes.encode_topic(grown)),
                *znodes.create_partitions(grown, first, controller_epoch=self.controller_epoch),
            ]
        )
        topic.partitions.extend(added)

    async def set_topic_options(self, topic: TopicState, overrides: dict[str, str]) -> None:
        data = znodes.encode_config(overrides)
        await self.write([Put(znodes.topic_config_path(topic.name), data)])
        topic.overrides = overrides

    async def set_broker_options(self, broker_id: int | None, overrides: dict[str, str]) -> None:
        await self._put(znodes.broker_config_path(broker_id), znodes.encode_config(overrides))
        self.image.broker_overrides[broker_id] = overrides

    async def set_named_options(
        self, kind: NamedResource, name: str, overrides: dict[str, str]
    ) -> None:
        path, named = znodes.named_config_path(kind, name), self.image.named_overrides[kind]
        if overrides:
            await self._put(path, znodes.encode_config(overrides))
            named[name] = overrides
        elif name in named:
            await self.write([Delete(path)])
            del named[name]

    async def set_entity_options(self, entity: ClientEntity, options: dict[str, str]) -> None:
        path = znodes.entity_config_path(entity)
        missing = await missing_parents(self.store, path)
        operation: Operation = Create(path, znodes.encode_config(options))
        if await self.store.exists(path):
            operation = Put(path, znodes.encode_config(options))
        await self.write([*missing, operation])
        self.image.client_entities.put(entity, options)

    async def set_acls(self, changes: AclChanges) -> None:
        operations: list[Operation] = []
        for pattern, entries in changes.items():
            path = znodes.acl_path(pattern)
            is_present = bool(self.image.acls.entries_of(pattern))
            if not entries:
                operations.append(Delete(path))
            elif is_present:
                operations.append(Put(path, znodes.encode_acls(entries)))
            else:
                operations.append(Create(path, znodes.encode_acls(entries)))
        await self.write(operations)
        self.image.acls.apply(changes)

    async def set_token(self, token_id: str, token: DelegationToken | None) -> None:
        path = znodes.token_path(token_id)
        if token is not None:
            await self._put(path, znodes.encode_token(token))
        elif token_id in self.image.delegation_tokens.tokens:
            await self.write([Delete(path)])
        self.image.delegation_tokens.put(token_id, token)

    async def _put(self, path: str, data: bytes) -> None:
        operation: Operation = Create(path, data)
        if await self.store.exists(path):
            operation = Put(path, data)
        await self.write([operation])

    async def get(self, path: str) -> Node:
        return await self.store.get(path)

    async def write(self, operations: Sequence[Operation]) -> None:
        """Report a full or failed disk to the client."""
        try:
            await self.store.commit(operations)
        except CoordinationFailed as error:
            raise KafkaError(KafkaCode.KAFKA_STORAGE_ERROR, str(error)) from error

    async def catch_up(self) -> None:
        raise AssertionError("no other node writes here")


async def missing_parents(store: CoordinationStore, path: str) -> list[Operation]:
    """What has to be created above an entity's znode, without options."""
    missing: list[Operation] = []
    above = parent_of(path)
    while not await store.exists(above):
        missing.insert(0, Create(above))
        above = parent_of(above)
    return missing
