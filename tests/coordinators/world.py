"""A shard without a loop: decisions, records and deadlines, a step at a time.

Every record goes through its bytes on the way to the state, and after every step the
state is compared with what a restart would read back.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from millstream.cluster.state import ClusterImage, PartitionState, TopicState
from millstream.config import BrokerConfig
from millstream.coordinators.classic.group import ClassicGroup, ClassicState
from millstream.coordinators.classic.protocol import JoinRequest, Leaving, SyncRequest
from millstream.coordinators.classic.rebalance import JoinReply, SyncReply
from millstream.coordinators.codecs.embedded import encode_subscription
from millstream.coordinators.codecs.table import KeyValue, decode, encode
from millstream.coordinators.consumer.group import ConsumerGroup
from millstream.coordinators.consumer.heartbeat import (
    HeartbeatReply,
    HeartbeatRequest,
    unmatched_pattern,
)
from millstream.coordinators.consumer.pattern import PatternMatch, compile_pattern
from millstream.coordinators.deadlines import Deadlines
from millstream.coordinators.decision import Decision, Env, Ticket
from millstream.coordinators.groups import offsets, requests
from millstream.coordinators.groups.offsets import CommitRequest
from millstream.coordinators.groups.settings import GroupSettings, group_settings
from millstream.coordinators.groups.state import ShardState
from millstream.coordinators.share.group import ShareGroup
from millstream.coordinators.share.heartbeat import ShareHeartbeatReply, ShareHeartbeatRequest
from millstream.coordinators.streams.group import StreamsGroup
from millstream.coordinators.transactions.machine import transaction_settings
from millstream.errors import KafkaCode, KafkaError
from millstream.wire.offset_commit import OffsetToCommit

SESSION_MS = 10_000
REBALANCE_MS = 60_000
GROUP = "readers"
# Those of a cluster, in which a new group does not wait for more members.
SETTINGS = replace(group_settings(BrokerConfig({}), nodes=2), initial_rebalance_delay_ms=0)
TRANSACTION_SETTINGS = transaction_settings(BrokerConfig({}))


def topic_id(number: int) -> UUID:
    return UUID(int=number + 1)


def image_of(**topics: int) -> ClusterImage:
    """Topics by name with their partition counts; ids count up."""
    image = ClusterImage()
    for number, (name, partitions) in enumerate(topics.items()):
        rows = [PartitionState(1, 0, (1,), (1,), 0) for _ in range(partitions)]
        image.add_topic(TopicState(name, topic_id(number), rows))
    return image


@dataclass(frozen=True, slots=True)
class VisibleTopics:
    """The topics that a member may describe; `version` changes when that may have changed."""

    version: int
    includes: Callable[[str], bool]


ALL_TOPICS = VisibleTopics(0, lambda name: True)


@dataclass
class World:
    image: ClusterImage = field(default_factory=lambda: image_of(orders=4))
    settings: GroupSettings = SETTINGS
    now_ms: int = 1_000_000
    state: ShardState = field(default_factory=ShardState)
    log: list[KeyValue] = field(default_factory=list)
    deadlines: Deadlines = field(default_factory=Deadlines)
    replies: dict[Ticket, object] = field(default_factory=dict)
    topics_version: int = 1
    # Every step; long runs do it at their end.
    checks_replay: bool = True
    _ids: int = 0

    # -- steps ------------------------------------------------------------------------

    def env(self, ticket: Ticket) -> Env:
        return Env(
            self.now_ms,
            self.now_ms,
            self.image,
            self.topics_version,
            self.settings,
            self._new_uuid,
            ticket,
        )

    def _new_uuid(self) -> UUID:
        self._ids += 1
        return UUID(int=self._ids)

    def step(self, decide: Callable[[ShardState, Env], Decision[Any]]) -> Ticket:
        """Decide, append, apply. The ticket's reply, if it is there, is in `replies`."""
        ticket = Ticket()
        env = self.env(ticket)
        decision = decide(self.state, env)
        while True:
            for change in decision.records:
                key, value = encode(change)
                self.log.append((key, value))
                back = decode(key, value)
                assert back is not None
                self.state.apply(back)
            for deadline in decision.deadlines:
                self.deadlines.set(deadline)
            for waiter, reply in decision.replies:
                assert waiter not in self.replies, "one request, two replies"
                self.replies[waiter] = reply
            if decision.reply is not None:
                self.replies[ticket] = decision.reply
            if decision.then is None:
                break
            decision = decision.then(env)
        if self.checks_replay:
            self.check_replay()
        return ticket

    def check_replay(self) -> None:
        """From the whole log, and from what compaction leaves of it. A classic group in the middle
        of a rebalance is, after a restart, as it was before."""
        now = durable(self.state)
        rebalancing = {
            group_id
            for group_id, group in self.state.groups.items()
            if isinstance(group, ClassicGroup) and group_id not in now
        }
        for log in (self.log, self.compacted()):
            then = durable(self.replayed(log))
            assert now == {name: view for name, view in then.items() if name not in rebalancing}

    def compacted(self) -> list[KeyValue]:
        """The last record of each key, where it is in the log."""
        found: dict[bytes, bytes | None] = {}
        for key, value in self.log:
            found.pop(key, None)
            found[key] = value
        return list(found.items())

    def replayed(self, log: Sequence[KeyValue] | None = None) -> ShardState:
        state = ShardState()
        for key, value in self.log if log is None else log:
            change = decode(key, value)
            if change is not None:
                state.apply(change)
        return state

    def restart(self) -> None:
        """As after a crash: only the log is left."""
        self.state = self.replayed()
        self.deadlines = Deadlines()
        for deadline in requests.deadlines_after_replay(self.state, self.env(Ticket())):
            self.deadlines.set(deadline)

    def pass_time(self, milliseconds: int) -> None:
        """Let time go by, deadline by deadline."""
        end_ms = self.now_ms + milliseconds
        while (at_ms := self.deadlines.next_at_ms()) is not None and at_ms <= end_ms:
            self.now_ms = max(self.now_ms, at_ms)
            for key in self.deadlines.due(self.now_ms):
                self.step(lambda state, env, key=key: requests.deadline_is_over(state, key, env))
        self.now_ms = end_ms

    def set_topics(self, **topics: int) -> None:
        self.image = image_of(**topics)
        self.topics_version += 1

    # -- classic members --------------------------------------------------------------

    def join(self, member_id: str = "", **changes: Any) -> Ticket:
        request = JoinRequest(
            group_id=GROUP,
            member_id=member_id,
            instance_id=None,
            client_id="c",
            client_host="/127.0.0.1",
            protocol_type="consumer",
            protocols=(("range", encode_subscription(("orders",))),),
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            must_know_its_id=False,
        )
        request = replace(request, **changes)
        return self.step(lambda state, env: requests.join(state, request, env))

    def joined(self, ticket: Ticket) -> JoinReply:
        reply = self.replies[ticket]
        assert isinstance(reply, JoinReply)
        return reply

    def sync(self, member_id: str, generation: int, **assignments: bytes) -> Ticket:
        by_member = {name.replace("__", "-"): data for name, data in assignments.items()}
        return self.sync_with(member_id, generation, by_member)

    def sync_with(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes],
        instance_id: str | None = None,
    ) -> Ticket:
        request = SyncRequest(member_id, instance_id, generation, None, None, assignments)
        return self.step(lambda state, env: requests.sync(state, GROUP, request, env))

    def synced(self, ticket: Ticket) -> SyncReply:
        reply = self.replies[ticket]
        assert isinstance(reply, SyncReply)
        return reply

    def heartbeat(
        self, member_id: str, generation: int, instance_id: str | None = None
    ) -> KafkaCode:
        ticket = self.step(
            lambda state, env: requests.heartbeat(
                state,
                GROUP,
                member_id=member_id,
                instance_id=instance_id,
                generation=generation,
                env=env,
            )
        )
        code = self.replies[ticket]
        assert isinstance(code, KafkaCode)
        return code

    def leave(self, member_id: str, instance_id: str | None = None) -> list[KafkaCode]:
        ticket = self.step(
            lambda state, env: requests.leave(state, GROUP, [Leaving(member_id, instance_id)], env)
        )
        codes = self.replies[ticket]
        assert isinstance(codes, list)
        return codes

    def stable_group(self, count: int) -> list[str]:
        """`count` classic members that have joined and synced; their ids, the leader first."""
        tickets = [self.join()]
        ids = [self.joined(tickets[0]).member_id]
        for _ in range(count - 1):
            new = self.join()
            for member_id in ids:
                self.join(member_id)
            ids.append(self.joined(new).member_id)
        group = self.classic()
        leader = group.leader_id or ""
        ids.sort(key=lambda member_id: member_id != leader)
        for member_id in ids:
            parts = {each: each.encode() for each in ids} if member_id == leader else {}
            self.sync_with(member_id, group.generation, parts)
        assert group.state is ClassicState.STABLE
        return ids

    def classic(self, group_id: str = GROUP) -> ClassicGroup:
        group = self.state.groups[group_id]
        assert isinstance(group, ClassicGroup)
        return group

    # -- members of the consumer protocol ---------------------------------------------

    def beat(
        self,
        member_id: str,
        epoch: int,
        visible: VisibleTopics | None = None,
        **changes: Any,
    ) -> HeartbeatReply:
        request = HeartbeatRequest(GROUP, member_id, epoch, "c", "/127.0.0.1")
        if epoch == 0:
            request = replace(
                request, rebalance_timeout_ms=REBALANCE_MS, topics=("orders",), owned={}
            )
        request = replace(request, **changes)
        self.match(request, visible or ALL_TOPICS)
        ticket = self.step(lambda state, env: requests.consumer_heartbeat(state, request, env))
        reply = self.replies[ticket]
        assert isinstance(reply, HeartbeatReply)
        return reply

    def match(self, request: HeartbeatRequest, visible: "VisibleTopics") -> None:
        """As a node does it before it decides."""
        request.visible_version = visible.version
        group = self.state.groups.get(request.group_id)
        known = group if isinstance(group, ConsumerGroup) else None
        pattern = unmatched_pattern(known, request, self.topics_version)
        if pattern is None:
            return
        names = sorted(filter(compile_pattern(pattern).matches, self.image.topics))
        topics = tuple(filter(visible.includes, names))
        request.matched = PatternMatch(pattern, topics, self.topics_version, visible.version)

    def consumers(self) -> ConsumerGroup:
        group = self.state.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    # -- members of share groups ------------------------------------------------------

    def share_beat(self, member_id: str, epoch: int, /, **changes: Any) -> ShareHeartbeatReply:
        request = ShareHeartbeatRequest(GROUP, member_id, epoch, "c", "/127.0.0.1")
        if epoch == 0:
            request = replace(request, topics=("orders",))
        request = replace(request, **changes)
        ticket = self.step(lambda state, env: requests.share_heartbeat(state, request, env))
        reply = self.replies[ticket]
        assert isinstance(reply, ShareHeartbeatReply)
        return reply

    def sharers(self) -> ShareGroup:
        return requests.share_group(self.state, GROUP)

    # -- offsets ----------------------------------------------------------------------

    def commit(
        self, offset: int, *, partition: int = 0, topic: str = "orders", **changes: Any
    ) -> KafkaCode:
        metadata = changes.pop("metadata", "")
        one = OffsetToCommit(partition, offset, 3, metadata)
        request = CommitRequest(GROUP, "", None, -1, [(topic, [one])])
        request = replace(request, **changes)
        ticket = self.step(lambda state, env: offsets.commit(state, request, env))
        codes = self.replies[ticket]
        assert isinstance(codes, list)
        code = codes[0][0]
        assert isinstance(code, KafkaCode)
        return code

    def committed(self, partition: int = 0, topic: str = "orders") -> int | None:
        found = self.state.committed(GROUP, topic, partition)
        return None if found is None else found.offset


def refused(call: Callable[[], object]) -> KafkaCode:
    """The error that a step ends with."""
    try:
        call()
    except KafkaError as error:
        return error.code
    raise AssertionError("the request was not refused")


def durable(state: ShardState) -> dict[str, object]:
    """What a restart must give back: everything but who waits for whom."""
    view: dict[str, object] = {"offsets": state.offsets}
    for group_id, group in state.groups.items():
        if isinstance(group, ConsumerGroup):
            view[group_id] = (
                group.epoch,
                group.metadata_hash,
                group.members,
                group.static_members,
                group.target_epoch,
                group.target_timestamp_ms,
                group.target,
                group.patterns,
                group.owned_epochs,
            )
        elif isinstance(group, ShareGroup):
            view[group_id] = (
                group.epoch,
                group.metadata_hash,
                group.members,
                group.target_epoch,
                group.target_timestamp_ms,
                group.target,
                group.topics,
            )
        elif isinstance(group, StreamsGroup):
            view[group_id] = (
                group.epoch,
                group.metadata_hash,
                group.validated_topology_epoch,
                group.assignment_configs,
                group.topology,
                group.members,
                group.target_epoch,
                group.target_timestamp_ms,
                group.target,
            )
        elif group.state is ClassicState.STABLE or (
            # A group that only ever lived in memory is not in the log.
            group.state is ClassicState.EMPTY and group.generation > 0
        ):
            parts = {each.member_id: each.assignment for each in group.members.values()}
            view[group_id] = group.stored(parts, group.state_timestamp_ms)
    return view
