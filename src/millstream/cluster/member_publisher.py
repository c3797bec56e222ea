"""Writes changes as a member of a cluster.

Every transaction checks that the node's incarnation is current and alive, and the image
follows the store. A topic that is too large for one transaction becomes visible with the last
write of its creation and invisible with the first write of its deletion: in between, its own
znode is empty. What an interruption leaves behind is removed by the next controller, or by this
node when it creates a topic of the same name.
"""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from millstream.cluster import znodes
from millstream.cluster.acls import AclChanges
from millstream.cluster.client_entities import ClientEntity
from millstream.cluster.incomplete_topics import remove_if_half_made, topic_paths
from millstream.cluster.membership import Membership
from millstream.cluster.publisher import missing_parents
from millstream.cluster.state import ClusterImage, NamedResource, PartitionState, TopicState
from millstream.cluster.stores.store import (
    BadVersion,
    Check,
    CoordinationFailed,
    Create,
    Delete,
    Node,
    NoNode,
    NotApplied,
    Operation,
    Put,
)
from millstream.errors import KafkaCode, KafkaError
from millstream.security.acl import Entry, ResourcePattern
from millstream.security.delegation import DelegationToken

# About 100 kB, far below ZooKeeper's limit of a megabyte.
OPERATIONS_MAX: Final = 400
# Patterns in one write; each may have many entries.
_ACLS_AT_ONCE: Final = 50


class MemberPublisher:
    """The image and the store of a cluster, as one of its nodes has them."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        # Topics that this node is creating or deleting in parts, or could not finish.
        self._half_made: set[str] = set()

    @property
    def image(self) -> ClusterImage:
        return self._membership.image

    def new_partition(self, replicas: tuple[int, ...], *, min_isr: int) -> PartitionState:
        return PartitionState(
            leader=replicas[0],
            leader_epoch=0,
            isr=replicas,
            replicas=replicas,
            version=0,
            min_isr=min(min_isr, len(replicas)),
            writer_token=self._membership.next_token(),
        )

    async def create(self, topics: Sequence[TopicState]) -> None:
        for topic in topics:
            if topic.name in self._half_made:
                await self._remove_half_made(topic.name)
            operations = list(
                znodes.create_topic(topic, controller_epoch=self.image.controller_epoch)
            )
            if len(operations) <= OPERATIONS_MAX:
                await self.write(operations)
            else:
                await self._create_in_parts(topic, operations)
            await self._read(topic.name)

    async def _create_in_parts(self, topic: TopicState, operations: list[Operation]) -> None:
        path = znodes.topic_path(topic.name)
        own, *others = operations
        assert own == Create(path, znodes.encode_topic(topic)), own
        self._half_made.add(topic.name)
        try:
            await self.write([Create(path)])
        except NotApplied:
            # Another node is creating or removing it.
            self._half_made.discard(topic.name)
            raise
        await self._write_in_parts(others, Check(path, 0))
        await self.write([Put(path, znodes.encode_topic(topic), 0)])
        self._half_made.discard(topic.name)

    async def delete(self, topics: Sequence[TopicState]) -> None:
        for topic in topics:
            if len(topic.partitions) > OPERATIONS_MAX // 2:
                await self._delete_in_parts(topic.name)
            else:
                await self._delete_at_once(topic.name)
            await self._read(topic.name)

    async def _delete_at_once(self, name: str) -> None:
        try:
            # Not by the image: a change that was interrupted may have left more.
            paths = await topic_paths(self._membership.store, name)
        except CoordinationFailed as error:
            raise _unreachable(error) from error
        if len(paths) <= OPERATIONS_MAX:
            await self.write([Delete(path) for path in paths])
        else:
            await self._delete_in_parts(name)

    async def _delete_in_parts(self, name: str) -> None:
        self._half_made.add(name)
        await self.write([Put(znodes.topic_path(name), b"")])
        # Now there is no such topic. If this fails, the controller is removing the rest.
        with contextlib.suppress(NotApplied):
            await self._remove_half_made(name)

    async def _remove_half_made(self, name: str) -> None:
        try:
            await remove_if_half_made(self._membership.store, name, self.write)
        except CoordinationFailed as error:
            raise _unreachable(error) from error
        self._half_made.discard(name)

    async def grow(self, topic: TopicState, added: Sequence[PartitionState]) -> None:
        grown = replace(topic, partitions=[*topic.partitions, *added])
        path = znodes.topic_path(topic.name)
        version = self._membership.observer.topic_version(topic.name)
        operations = list(
            znodes.create_partitions(
                grown, len(topic.partitions), controller_epoch=self.image.controller_epoch
            )
        )
        # The topic's own znode last: until it lists them, the new partitions do not exist.
        for start in range(0, len(operations), OPERATIONS_MAX):
            part = operations[start : start + OPERATIONS_MAX]
            operations[start : start + OPERATIONS_MAX] = await asyncio.gather(
                *map(self._leftover, part)
            )
        operations.append(Put(path, znodes.encode_topic(grown), version))
        await self._write_in_parts(operations, Check(path, version))
        await self._read(topic.name)

    async def _leftover(self, operation: Operation) -> Operation:
        """Reuses a znode that an earlier attempt left behind."""
        assert isinstance(operation, Create)
        try:
            node = await self.get(operation.path)
        except NoNode:
            return operation
        return Put(operation.path, operation.data, node.version)

    async def set_topic_options(self, topic: TopicState, overrides: dict[str, str]) -> None:
        path = znodes.topic_config_path(topic.name)
        await self._put_options(path, topic.overrides, overrides)
        await self._read(topic.name)

    async def set_broker_options(self, broker_id: int | None, overrides: dict[str, str]) -> None:
        present = self.image.broker_overrides.get(broker_id, {})
        await self._put_options(znodes.broker_config_path(broker_id), present, overrides)
        await self.catch_up()

    async def set_named_options(
        self, kind: NamedResource, name: str, overrides: dict[str, str]
    ) -> None:
        path, named = znodes.named_config_path(kind, name), self.image.named_overrides[kind]
        if overrides:
            await self._put_options(path, named.get(name, {}), overrides)
        elif name in named:
            await self.write([Delete(path)])
        await self.catch_up()

    async def set_entity_options(self, entity: ClientEntity, options: dict[str, str]) -> None:
        path, root = znodes.entity_config_path(entity), znodes.entity_root(entity)
        present = self.image.client_entities.options_of(entity)
        try:
            missing = await missing_parents(self._membership.store, path)
            operation = await self._put_operation(path, present, options)
            await self.write([*missing, operation, Put(root, b"")])
            await self._membership.observer.read_entities(root)
        except CoordinationFailed as error:
            raise _unreachable(error) from error

    async def set_acls(self, changes: AclChanges) -> None:
        patterns = list(changes)
        try:
            # One after the other: if another node was faster, the rest is decided again.
            for start in range(0, len(patterns), _ACLS_AT_ONCE):
                part = patterns[start : start + _ACLS_AT_ONCE]
                operations = [
                    await self._acl_operation(pattern, changes[pattern]) for pattern in part
                ]
                news = Put(znodes.ACL_CHANGES, znodes.encode_acl_changes(part))
                await self.write([*operations, news])
                await self._membership.observer.read_acls()
        except CoordinationFailed as error:
            raise _unreachable(error) from error

    async def _acl_operation(
        self, pattern: ResourcePattern, entries: frozenset[Entry]
    ) -> Operation:
        """As for options: the decision is right only while the store has what it was based on."""
        path, present = znodes.acl_path(pattern), self.image.acls.entries_of(pattern)
        try:
            node = await self.get(path)
        except NoNode:
            if present:
                raise
            return Create(path, znodes.encode_acls(entries))
        if znodes.decode_acls(node) != present:
            raise BadVersion(path)
        if not entries:
            return Delete(path, node.version)
        return Put(path, znodes.encode_acls(entries), node.version)

    async def set_token(self, token_id: str, token: DelegationToken | None) -> None:
        path = znodes.token_path(token_id)
        present = self.image.delegation_tokens.tokens.get(token_id)
        operations: list[Operation] = []
        if present is None and token is not None:
            operations.append(Create(path, znodes.encode_token(token)))
        elif present is not None:
            node = await self.get(path)
            if znodes.decode_token(node) != present:
                raise BadVersion(path)
            if token is None:
                operations.append(Delete(path, node.version))
            else:
                operations.append(Put(path, znodes.encode_token(token), node.version))
        if operations:
            await self.write([*operations, Put(znodes.TOKENS, b"")])
        try:
            await self._membership.observer.read_tokens()
        except CoordinationFailed as error:
            raise _unreachable(error) from error

    async def _put_options(
        self, path: str, present: dict[str, str], overrides: dict[str, str]
    ) -> None:
        await self.write([await self._put_operation(path, present, overrides)])

    async def _put_operation(
        self, path: str, present: Mapping[str, str], overrides: dict[str, str]
    ) -> Operation:
        """A decision based on `present` is only right while the store has that, too."""
        data = znodes.encode_config(overrides)
        try:
            node = await self.get(path)
        except NoNode:
            return Create(path, data)
        if (znodes.decode_config(node) if node.data else {}) != present:
            raise BadVersion(path)
        return Put(path, data, node.version)

    async def get(self, path: str) -> Node:
        try:
            return await self._membership.store.get(path)
        except CoordinationFailed as error:
            raise _unreachable(error) from error

    async def write(self, operations: Sequence[Operation]) -> None:
        guards = self._membership.guards()
        try:
            await self._membership.store.commit([*guards, *operations])
        except CoordinationFailed as error:
            raise _unreachable(error) from error
        except NotApplied as problem:
            if problem.operation in guards:
                raise KafkaError(
                    KafkaCode.BROKER_NOT_AVAILABLE, "this node is not in the cluster now"
                ) from problem
            raise

    async def _write_in_parts(self, operations: Sequence[Operation], check: Check) -> None:
        """Nothing more once `check` fails: another node has changed or removed the topic."""
        for start in range(0, len(operations), OPERATIONS_MAX):
            await self.write([check, *operations[start : start + OPERATIONS_MAX]])

    async def _read(self, topic: str) -> None:
        try:
            await self._membership.observer.read_topic(topic)
        except CoordinationFailed as error:
            raise _unreachable(error) from error

    async def catch_up(self) -> None:
        try:
            await self._membership.observer.reload()
        except CoordinationFailed as error:
            raise _unreachable(error) from error


def _unreachable(error: CoordinationFailed) -> KafkaError:
    """Retriable; when the client asks again, it sees whether an unanswered write happened."""
    return KafkaError(KafkaCode.REQUEST_TIMED_OUT, str(error))
