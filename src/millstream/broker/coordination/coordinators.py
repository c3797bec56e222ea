"""The group coordinator of this node: its topic, its settings, and what expires.

Wiring only. `coordinators/` decides what groups do; `shards` keeps the shards.
"""

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from millstream.broker.coordination.creation_quota import CreationQuota
from millstream.broker.coordination.member_quota import (
    Caller,
    MemberQuota,
    assignment_bytes,
    member_bytes,
)
from millstream.broker.coordination.pattern_matching import PatternMatching
from millstream.broker.coordination.shards import Shards, shown
from millstream.broker.node.state import NodeState
from millstream.broker.node.topics import Topics
from millstream.cluster.changes import NewTopic
from millstream.cluster.state import TopicState
from millstream.coordinators.codecs.changes import Change, CommittedOffset
from millstream.coordinators.consumer.group import ConsumerGroup
from millstream.coordinators.consumer.heartbeat import HeartbeatRequest, unmatched_pattern
from millstream.coordinators.consumer.pattern import PatternMatch
from millstream.coordinators.decision import Decision, Env, Ticket
from millstream.coordinators.groups import admin, offsets
from millstream.coordinators.groups.machine import GROUPS, GroupShard
from millstream.coordinators.groups.settings import GroupSettings, group_settings
from millstream.coordinators.groups.state import Group, ShardState
from millstream.coordinators.journal import Decide, Machine, ShardStatus
from millstream.coordinators.sizes import subscription_bytes
from millstream.coordinators.streams.group import StreamsGroup
from millstream.errors import KafkaError
from millstream.model import NO_TOPIC_ID, OFFSETS_TOPIC
from millstream.wire.message import Message

R = TypeVar("R")
M = TypeVar("M", bound=Message)
GroupMachine = Machine[ShardState, Change, Env]
GroupDecide = Decide[ShardState, Env, R, Change]


class GroupCoordinators:
    def __init__(
        self,
        node: NodeState,
        topics: Topics,
        creations: CreationQuota,
        machine: GroupMachine = GROUPS,
        mirror: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        """`mirror` copies what the machine reports, until it is cancelled."""
        self._mirror = mirror
        self._node = node
        self._topics = topics
        self._creations = creations
        self.shards = Shards(node, topics, OFFSETS_TOPIC, self._topic, machine, self._env)
        self._quota = MemberQuota()
        self.matching = PatternMatching(node, topics)
        self._settings: GroupSettings | None = None
        self._settings_of: object = None

    def start(self) -> None:
        self.shards.start()
        self.shards.spawn(self._forget_old_offsets())
        if self._mirror is not None:
            self.shards.spawn(self._mirror())

    async def stop(self) -> None:
        await self.shards.stop()

    def _topic(self) -> NewTopic:
        config = self._node.config
        replicas = config.int("offsets.topic.replication.factor")
        return NewTopic(
            OFFSETS_TOPIC,
            config.int("offsets.topic.num.partitions"),
            self._node.cluster.internal_replicas(replicas),
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.int("offsets.topic.segment.bytes")),
            },
        )

    async def ensure_topic(self) -> None:
        """Create the offsets topic at the first request for a group."""
        await self.shards.ensure_topic()

    @property
    def has_topic(self) -> bool:
        return self.shards.has_topic

    # -- requests ---------------------------------------------------------------------

    @property
    def settings(self) -> GroupSettings:
        config = self._node.config
        if self._settings is None or self._settings_of is not config:
            self._settings = group_settings(config, nodes=len(self._node.image.brokers))
            self._settings_of = config
        return self._settings

    def _env(self, ticket: Ticket) -> Env:
        node = self._node
        return Env(
            node.clock.now_ms(),
            node.now_ms(),
            node.image,
            self._topics.version,
            self.settings,
            uuid.uuid4,
            ticket,
        )

    def shard_for(self, group_id: str) -> GroupShard:
        """Raises KafkaError if this node does not coordinate the group, or has not loaded it."""
        return self.shards.shard_for(group_id)

    def submit(self, group_id: str, decide: "GroupDecide[R]") -> "R | asyncio.Future[R]":
        """The reply, or a future of it. Raises KafkaError if the answer is an error."""
        return self.shards.submit(group_id, decide)

    def ask(
        self,
        group_id: str,
        decide: "GroupDecide[R]",
        *,
        show: Callable[[R], M],
        refuse: Callable[[KafkaError], M],
    ) -> M | Coroutine[Any, Any, M]:
        """What a handler returns: the reply as a message, now or when it is ready."""
        try:
            answer = self.submit(group_id, decide)
        except KafkaError as error:
            return refuse(error)
        return shown(answer, show, refuse)

    def admit_group(self, group_id: str, client: str) -> None:
        """Raises KafkaError where the group is new, and the client has begun too many."""
        if self._group(group_id) is None:
            self._creations.admit(client, group_id, now_ms=self._node.now_ms())

    def admit_metadata(self, group_id: str, client: str, topics: offsets.TopicOffsets) -> None:
        """Offsets are committed with metadata. Raises KafkaError where it is longer than what is
        there, and the client has no room for that."""
        held = self._active_shard(group_id).state.offsets.get(group_id, {})
        length_max = self.settings.offset_metadata_length_max
        grown = offsets.grown_metadata(held, topics, length_max=length_max)
        if grown:
            self._creations.admit_metadata(client, grown, now_ms=self._node.now_ms())

    def admit_member(
        self,
        group_id: str,
        caller: Caller,
        size_bytes: int,
        *,
        member_id: str = "",
        shared_bytes: int = 0,
    ) -> None:
        """A member joins, maybe again, and brings this much; `shared_bytes` are for the whole
        group. Raises KafkaError where the client has too many or too large members in this node's
        groups, or has begun too many groups.

        Members whose session has expired leave first: one of them may own the instance id that
        the new member brings.
        """
        self.shards.end_what_is_over(group_id)
        held = member_bytes(self._group(group_id), member_id)
        if held is None:
            self._admit(group_id, caller, size_bytes + shared_bytes, members=1)
        else:
            self._admit(group_id, caller, max(size_bytes - held, 0) + shared_bytes)
        self.admit_group(group_id, caller.client)

    def admit_change(
        self, group_id: str, caller: Caller, size_bytes: int, *, member_id: str
    ) -> None:
        """A member that is there brings this much. Raises KafkaError where it has more than
        before, and the client has no room for that."""
        held = member_bytes(self._group(group_id), member_id)
        if held is not None and size_bytes > held:
            self._admit(group_id, caller, size_bytes - held)

    def admit_assignments(self, group_id: str, caller: Caller, size_bytes: int) -> None:
        """A leader assigns this much in all. Raises KafkaError as `admit_change`."""
        grown = size_bytes - assignment_bytes(self._group(group_id))
        if grown > 0:
            self._admit(group_id, caller, grown)

    def admit_matches(self, group_id: str, caller: Caller, match: PatternMatch) -> None:
        """A pattern of a group matches these topics. Raises KafkaError as `admit_change`."""
        group = self._group(group_id)
        held = group.pattern_bytes.get(match.pattern, 0) if isinstance(group, ConsumerGroup) else 0
        grown = subscription_bytes(match.topics, match.pattern) - held
        if grown > 0:
            self._admit(group_id, caller, grown)

    def unmatched_pattern(self, heartbeat: HeartbeatRequest) -> str | None:
        """The pattern that has to be matched before the heartbeat is decided. Raises KafkaError
        where the group is not here."""
        group = self._group(heartbeat.group_id)
        known = group if isinstance(group, ConsumerGroup) else None
        return unmatched_pattern(known, heartbeat, self._topics.version)

    def has_topology(self, group_id: str) -> bool:
        group = self._group(group_id)
        return isinstance(group, StreamsGroup) and group.topology is not None

    def _group(self, group_id: str) -> Group | None:
        """Raises KafkaError where the group is not here, or not yet: nothing counts then."""
        return self._active_shard(group_id).state.groups.get(group_id)

    def _active_shard(self, group_id: str) -> GroupShard:
        shard = self.shard_for(group_id)
        shard.require_active()
        return shard

    def _admit(self, group_id: str, caller: Caller, size_bytes: int, *, members: int = 0) -> None:
        if not size_bytes and not members:
            return
        groups = (group for shard in self.shards.all for group in shard.state.groups.values())
        self._quota.admit(
            caller,
            group_id,
            groups,
            members=members,
            size_bytes=size_bytes,
            now_ms=self._node.now_ms(),
        )

    async def active_shards(self) -> list[GroupShard]:
        """All shards, once what they show is committed. Raises KafkaError while one loads."""
        return await self.shards.active()

    async def committed(
        self, group: str, topic: TopicState, indexes: Sequence[int]
    ) -> dict[int, int]:
        """What a group has committed, by partition. Raises KafkaError while it is unknown."""
        answer = self.submit(
            group,
            lambda state, env: offsets.fetch(
                state,
                group,
                topics=[(topic.name, list(indexes))],
                member_id=None,
                member_epoch=-1,
                require_stable=True,
            ),
        )
        [found] = await answer if isinstance(answer, asyncio.Future) else answer
        return {
            index: committed.offset
            for index, committed in found.partitions
            # A commit for an older topic of the same name says nothing about this one.
            if isinstance(committed, CommittedOffset)
            and committed.topic_id in (NO_TOPIC_ID, topic.topic_id)
        }

    def topic_is_gone(self, topic: TopicState) -> None:
        """Forget a deleted topic: its committed offsets, and its share partitions."""
        for shard in self.shards.all:
            if shard.status is not ShardStatus.ACTIVE:
                continue
            for group_id, forgotten in offsets.forget_topics(shard.state, [topic.name]).items():
                _write(shard, group_id, forgotten)
            for group_id, records in admin.forget_shared(shard.state, topic.topic_id).items():
                _write(shard, group_id, records)

    async def _forget_old_offsets(self) -> None:
        while True:
            interval_ms = self._node.config.int("offsets.retention.check.interval.ms")
            await asyncio.sleep(interval_ms / 1000)
            for shard in self.shards.all:
                for group_id in list(shard.state.groups):
                    _expire_offsets(shard, group_id)
                await asyncio.sleep(0)


def _write(shard: GroupShard, group_id: str, records: Sequence[Change]) -> None:
    shard.submit_internal(group_id, lambda state, env: Decision(records=list(records)))


def _expire_offsets(shard: GroupShard, group_id: str) -> None:
    shard.submit_internal(group_id, lambda state, env: admin.expire_offsets(state, group_id, env))
