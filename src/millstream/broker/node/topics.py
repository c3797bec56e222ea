"""Changes topics: first in the coordination store, then on this node's disk.

The store is durable before anything happens here. After a crash in between, the start
finds the difference: a partition without a directory gets one, and a directory without a
topic is set aside.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from millstream.broker.node.log_config import log_config
from millstream.broker.node.state import NodeState
from millstream.cluster.changes import ConfigChange, NewTopic
from millstream.cluster.metadata import TopicResult
from millstream.cluster.state import TopicState
from millstream.errors import KafkaCode, KafkaError, LogDirFailed
from millstream.model import INTERNAL_TOPICS, NO_TOPIC_ID, TopicPartition
from millstream.replication.partition import Partition
from millstream.storage.values import LogConfig

log = logging.getLogger(__name__)

# About a millisecond of system calls each.
_OPENED_AT_ONCE_MAX: Final = 2
_DELETED_AT_ONCE_MAX: Final = 20
# Between such turns while others use the node: it serves them, and its disk commits the new
# directories a few at a time, or a sync of another client would wait for all of them.
_REST_SECONDS: Final = 0.001


class Topics:
    def __init__(
        self,
        node: NodeState,
        *,
        ensure_internal: Callable[[str], Awaitable[None]],
        is_in_use: Callable[[], bool] = lambda: False,
    ) -> None:
        """`ensure_internal` creates an internal topic with its coordinator's options.
        `is_in_use` says whether a client sends requests right now. The one that waits for a
        topic is silent."""
        self._node = node
        self._metadata = node.metadata
        self._ensure_internal = ensure_internal
        self._is_in_use = is_in_use
        # Changes whenever a topic is created, deleted or gets partitions.
        self.version = 0
        # Called with a topic after its partitions are closed.
        self.on_deleted: Callable[[TopicState], None] = lambda topic: None
        # Topics with partitions that could not be created (a full disk, say): `complete` retries.
        self._incomplete: set[str] = set()

    # -- topics ---------------------------------------------------------------------

    async def create(self, wanted: Sequence[NewTopic], *, validate_only: bool) -> list[TopicResult]:
        try:
            results = await self._metadata.create_topics(wanted, validate_only=validate_only)
        except KafkaError as error:
            return [TopicResult(new.name, error=error.kept()) for new in wanted]
        if not validate_only:
            for result in results:
                if result.state is not None and result.error is None:
                    await self._open_in_turns(result.state)
        return results

    async def _open_in_turns(self, state: TopicState) -> None:
        """Making files takes long, and there may be thousands of topics and partitions."""
        missing = self._missing(state)
        for first in range(0, len(missing), _OPENED_AT_ONCE_MAX):
            current = self._node.image.topics.get(state.name)
            if current is None or current.topic_id != state.topic_id:
                return
            self._open_or_wait(state, missing[first : first + _OPENED_AT_ONCE_MAX])
            await asyncio.sleep(self._rest_seconds())

    def open_or_wait(self, state: TopicState) -> None:
        """The topic exists, whatever the disk says; it is usable once there is room."""
        self._open_or_wait(state, self._missing(state))

    def _open_or_wait(self, state: TopicState, missing: Sequence[TopicPartition]) -> None:
        try:
            self._open(state, missing)
        except KafkaError as error:
            log.warning("cannot open partitions of %s yet: %s", state.name, error)

    async def auto_create(self, names: Sequence[str]) -> dict[str, KafkaError]:
        """Create topics that a client named; return what could not be created, and why."""
        wanted = [
            NewTopic(name=name, partitions=-1, replication_factor=-1)
            for name in names
            if name not in INTERNAL_TOPICS
        ]
        results = await self.create(wanted, validate_only=False) if wanted else []
        failed = {result.name: result.error for result in results if result.error is not None}
        for name in INTERNAL_TOPICS.intersection(names):
            try:
                await self._ensure_internal(name)
            except KafkaError as error:
                code = KafkaCode.LEADER_NOT_AVAILABLE
                failed[name] = KafkaError(code, error.message)
        return failed

    async def delete(self, name: str) -> None:
        if name in INTERNAL_TOPICS:
            raise KafkaError(KafkaCode.INVALID_TOPIC_EXCEPTION, f"{name} is internal")
        [result] = await self._metadata.delete_topics([name])
        if result.error is not None:
            raise result.error
        assert result.state is not None
        self._node.cluster.topic_deleted(result.state)

    def forget(self, topic: TopicState) -> None:
        """The topic is deleted: close this node's partitions of it."""
        for partition in self._node.partitions.remove_topic(topic.name):
            self._end(partition)
            self._node.disk.store.delete_later(partition.topic_partition)
        self.version += 1
        self.on_deleted(topic)
        self._finish_deletions()

    def _finish_deletions(self) -> None:
        """In turns: directories are renamed, and there may be thousands."""
        try:
            is_done = self._node.disk.store.finish_deletions(_DELETED_AT_ONCE_MAX)
        except LogDirFailed as error:
            self._node.disk.fail(str(error))
            return
        if not is_done:
            loop = asyncio.get_running_loop()
            loop.call_later(self._rest_seconds(), self._finish_deletions)

    def _rest_seconds(self) -> float:
        return _REST_SECONDS if self._is_in_use() else 0

    async def add_partitions(
        self,
        name: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None,
        *,
        validate_only: bool,
    ) -> None:
        if name in INTERNAL_TOPICS:
            raise KafkaError(
                KafkaCode.INVALID_PARTITIONS,
                f"{name} keeps its partitions: their number says where each name is found",
            )
        result = await self._metadata.create_partitions(
            name, count, assignments, validate_only=validate_only
        )
        if result.error is not None:
            raise result.error
        if result.state is not None and not validate_only:
            self.open_partitions(result.state)

    # -- settings -------------------------------------------------------------------

    async def alter_topic_configs(
        self, name: str, changes: Sequence[ConfigChange], *, validate_only: bool
    ) -> None:
        state = await self._metadata.alter_topic_configs(name, changes, validate_only=validate_only)
        if not validate_only:
            self._apply_config(state)

    async def replace_topic_configs(
        self, name: str, settings: dict[str, str | None], *, validate_only: bool
    ) -> None:
        state = await self._metadata.replace_topic_configs(
            name, settings, validate_only=validate_only
        )
        if not validate_only:
            self._apply_config(state)

    async def alter_broker_configs(
        self, broker_id: int | None, changes: Sequence[ConfigChange], *, validate_only: bool
    ) -> None:
        await self._metadata.alter_broker_configs(broker_id, changes, validate_only=validate_only)
        if not validate_only:
            self.apply_broker_config()

    async def replace_broker_configs(
        self, broker_id: int | None, settings: dict[str, str | None], *, validate_only: bool
    ) -> None:
        await self._metadata.replace_broker_configs(
            broker_id, settings, validate_only=validate_only
        )
        if not validate_only:
            self.apply_broker_config()

    def apply_broker_config(self) -> None:
        self._node.reload_config()
        for state in self._node.image.topics.values():
            self._apply_config(state)

    def apply_topic_config(self, name: str) -> None:
        """The topic's options were changed, by this node or another."""
        state = self._node.image.topics.get(name)
        if state is not None:
            self._apply_config(state)

    def _apply_config(self, state: TopicState) -> None:
        config = self.config_of(state)
        for partition in self._node.partitions.of_topic(state.name).values():
            partition.update_config(config)

    def config_of(self, state: TopicState) -> LogConfig:
        return log_config(self._node.config, state.overrides)

    # -- partitions -----------------------------------------------------------------

    def complete(self) -> None:
        """Open the partitions that had no room on the disk, if there is room now."""
        for name in list(self._incomplete):
            state = self._node.image.topics.get(name)
            try:
                if state is not None:
                    self.open_partitions(state)
            except KafkaError:
                continue
            self._incomplete.discard(name)

    def open_partitions(self, state: TopicState) -> None:
        """Make this node's partitions of a topic usable, those that are not yet."""
        self._open(state, self._missing(state))

    def _missing(self, state: TopicState) -> list[TopicPartition]:
        """This node's partitions of a topic that are not open."""
        node = self._node
        return [
            TopicPartition(state.name, index)
            for index, partition in enumerate(state.partitions)
            if node.partitions.find(state.name, index) is None and node.cluster.hosts(partition)
        ]

    def _open(self, state: TopicState, wanted: Sequence[TopicPartition]) -> None:
        self.version += 1
        node, store = self._node, self._node.disk.store
        config = self.config_of(state)
        # Others may have been opened since they were found.
        missing = [w for w in wanted if node.partitions.find(w.topic, w.partition) is None]
        absent = [w for w in missing if w not in store.logs and w not in store.offline]
        try:
            store.create_many(absent, state.topic_id, config)
        except KafkaError:
            self._incomplete.add(state.name)
            raise
        except LogDirFailed as error:
            node.disk.fail(str(error))
            raise KafkaError(KafkaCode.KAFKA_STORAGE_ERROR, str(error)) from error
        for where in missing:
            partition_log = store.logs.get(where)
            if partition_log is None:
                log.error("partition %s is offline: %s", where, store.offline.get(where))
                continue
            partition_log.update_config(config)
            if partition_log.topic_id == NO_TOPIC_ID:
                # Written before topic ids existed, or the power failed while it was created.
                partition_log.give_topic_id(state.topic_id)
            node.partitions.add(node.cluster.open(where, state, partition_log))
        node.cluster.opened(missing)

    def close(self, partition: Partition) -> None:
        """Delete a partition that is no longer in the table."""
        self._end(partition)
        try:
            self._node.disk.store.delete(partition.topic_partition)
        except LogDirFailed as error:
            self._node.disk.fail(str(error))

    def _end(self, partition: Partition) -> None:
        """Nobody uses it from now on."""
        partition.go_away()
        self._node.cluster.closing(partition)
        self._node.disk.durability.forget(partition)
