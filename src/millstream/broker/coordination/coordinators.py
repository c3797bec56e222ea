"""The group coordinator of this node: its topic, its settings, and what time makes it forget.

Wiring only. What groups do is in `coordinators/`, how shards are kept in `shards`.
"""

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from millstream.broker.coordination.shards import Shards, internal_replicas, shown
from millstream.cluster.changes import NewTopic
from millstream.coordinators import admin, offsets
from millstream.coordinators.codecs.changes import Change
from millstream.coordinators.decision import Decision, Env, Ticket
from millstream.coordinators.group_machine import GROUPS, GroupShard
from millstream.coordinators.journal import Decide, ShardStatus
from millstream.coordinators.settings import GroupSettings, group_settings
from millstream.coordinators.state import ShardState
from millstream.errors import KafkaError
from millstream.model import OFFSETS_TOPIC
from millstream.wire.messages import Struct

if TYPE_CHECKING:
    from millstream.broker.broker import Broker
    from millstream.broker.coordination.consumers_mirror import ConsumersMirror

R = TypeVar("R")
GroupDecide = Decide[ShardState, Env, R, Change]


class GroupCoordinators:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._mirror = _mirror_if_wanted(broker)
        machine = GROUPS if self._mirror is None else self._mirror.machine()
        self.shards = Shards(broker, self._topic, machine, self._env)
        self._settings: GroupSettings | None = None
        self._settings_of: object = None

    def start(self) -> None:
        self.shards.start()
        self.shards.spawn(self._forget_old_offsets())
        if self._mirror is not None:
            self.shards.spawn(self._mirror.run())

    async def stop(self) -> None:
        await self.shards.stop()

    def _topic(self) -> NewTopic:
        config = self._broker.config
        replicas = config.int("offsets.topic.replication.factor")
        return NewTopic(
            OFFSETS_TOPIC,
            config.int("offsets.topic.num.partitions"),
            internal_replicas(self._broker, replicas),
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.int("offsets.topic.segment.bytes")),
            },
        )

    async def ensure_topic(self) -> None:
        """Create the offsets topic when the first group is looked for."""
        await self.shards.ensure_topic()

    @property
    def has_topic(self) -> bool:
        return self.shards.has_topic

    # -- requests ---------------------------------------------------------------------

    @property
    def settings(self) -> GroupSettings:
        config = self._broker.config
        if self._settings is None or self._settings_of is not config:
            self._settings = group_settings(config, nodes=len(self._broker.image.brokers))
            self._settings_of = config
        return self._settings

    def _env(self, ticket: Ticket) -> Env:
        broker = self._broker
        return Env(
            broker.clock.now_ms(),
            int(broker.clock.monotonic() * 1000),
            broker.image,
            broker.topics.version,
            self.settings,
            uuid.uuid4,
            ticket,
        )

    def shard_for(self, group_id: str) -> GroupShard:
        """Raises KafkaError where this node does not, or not yet, look after the group."""
        return self.shards.shard_for(group_id)

    def submit(self, group_id: str, decide: "GroupDecide[R]") -> "R | asyncio.Future[R]":
        """The reply, or what will hold it. Raises KafkaError where the answer is one."""
        return self.shards.submit(group_id, decide)

    def ask(
        self,
        group_id: str,
        decide: "GroupDecide[R]",
        *,
        show: Callable[[R], Struct],
        refuse: Callable[[KafkaError], Struct],
    ) -> Struct | Coroutine[Any, Any, Struct]:
        """What a handler returns: the reply as a message, now or when it is there."""
        try:
            answer = self.submit(group_id, decide)
        except KafkaError as error:
            return refuse(error)
        return shown(answer, show, refuse)

    async def active_shards(self) -> list[GroupShard]:
        """All shards, once what they show is committed. Raises KafkaError while one loads."""
        return await self.shards.active()

    def topics_are_gone(self, names: Iterable[str]) -> None:
        """Deleted topics take their committed offsets along."""
        for shard in self.shards.all:
            if shard.status is not ShardStatus.ACTIVE:
                continue
            for group_id, records in offsets.forget_topics(shard.state, names).items():
                _write(shard, group_id, records)

    async def _forget_old_offsets(self) -> None:
        while True:
            interval_ms = self._broker.config.int("offsets.retention.check.interval.ms")
            await asyncio.sleep(interval_ms / 1000)
            for shard in self.shards.all:
                for group_id in list(shard.state.groups):
                    _expire_offsets(shard, group_id)
                await asyncio.sleep(0)


def _mirror_if_wanted(broker: "Broker") -> "ConsumersMirror | None":
    if not broker.config.boolean("zookeeper.consumers.mirror"):
        return None
    # Few want it, and every start would pay for it.
    from millstream.broker.coordination.consumers_mirror import ConsumersMirror

    return ConsumersMirror(broker)


def _write(shard: GroupShard, group_id: str, records: Sequence[Change]) -> None:
    shard.run(group_id, lambda state, env: Decision(records=list(records)))


def _expire_offsets(shard: GroupShard, group_id: str) -> None:
    shard.run(group_id, lambda state, env: admin.expire_offsets(state, group_id, env))


def gather(
    answers: Sequence[Struct | Coroutine[Any, Any, Struct]],
    combine: Callable[[list[Struct]], Struct],
) -> Struct | Coroutine[Any, Any, Struct]:
    """One answer about several groups, in order; at once if all of them are there."""
    ready = [each for each in answers if isinstance(each, Struct)]
    if len(ready) == len(answers):
        return combine(ready)
    return _gather_later(answers, combine)


async def _gather_later(
    answers: Sequence[Struct | Coroutine[Any, Any, Struct]],
    combine: Callable[[list[Struct]], Struct],
) -> Struct:
    return combine([await _when_ready(answer) for answer in answers])


async def _when_ready(answer: Struct | Coroutine[Any, Any, Struct]) -> Struct:
    if isinstance(answer, Struct):
        return answer
    # A cast: a Struct has any attribute for mypy, so it does not leave the union.
    return await cast("Coroutine[Any, Any, Struct]", answer)
