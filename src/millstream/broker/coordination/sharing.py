"""Everything of share groups on this node, created when the first client asks for one."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final

from millstream.broker.coordination.coordinators import GroupCoordinators
from millstream.broker.coordination.dead_letters import DeadLetters
from millstream.broker.coordination.share_coordinator import ShareCoordinator
from millstream.broker.coordination.share_partitions import SharePartitions
from millstream.broker.coordination.share_sessions import ShareSession, ShareSessions, Where
from millstream.broker.coordination.share_state import ShareStateStore
from millstream.broker.node.state import NodeState
from millstream.broker.node.topics import Topics
from millstream.cluster.state import TopicState
from millstream.coordinators.codecs.share_state import ShareKey
from millstream.errors import KafkaError

log = logging.getLogger(__name__)

_SESSIONS_MAX: Final = "group.share.max.share.sessions"
# A client may close thousands of connections at once, whose sessions have a hundred thousand
# partitions. They end in turns, with a rest before each, so that others are served.
_TURN_SECONDS: Final = 0.0005
_REST_SECONDS: Final = 0.001


class Sharing:
    """`coordinator` keeps the state of share partitions, `state` asks it wherever it is;
    `partitions` are those that this node leads, `sessions` the members that fetch from them."""

    def __init__(self, node: NodeState, topics: Topics, groups: GroupCoordinators) -> None:
        self.groups = groups
        self.coordinator = ShareCoordinator(node, topics)
        self.state = ShareStateStore(node, lambda: self.coordinator)
        self.dead_letters = DeadLetters(node, topics)
        self.partitions = SharePartitions(node, self.state, self.dead_letters)
        self.sessions = ShareSessions(
            lambda: node.config.int(_SESSIONS_MAX),
            lambda ended: self.partitions.spawn(self._end_sessions(ended)),
            self.partitions.forget_group,
        )
        # Whose turn it is to end sessions.
        self._turn = asyncio.Lock()

    def start(self) -> None:
        self.coordinator.start()

    async def stop(self) -> None:
        await self.partitions.stop()
        await self.coordinator.stop()

    def topic_deleted(self, topic: TopicState) -> None:
        self.partitions.forget_topic(topic.topic_id)
        self.coordinator.topic_is_gone(topic.topic_id)

    async def _end_sessions(self, ended: Sequence[ShareSession]) -> None:
        for session in ended:
            await self.end_session(session)

    async def end_session(self, session: ShareSession) -> None:
        """Give back what the member has acquired, and forget the session."""
        self.sessions.end(session)
        # A copy: a request of the session may still be answered.
        async for where in self._in_turns(list(session.partitions)):
            if self.sessions.has(session.key):
                # The member is back, and may have acquired others.
                return
            await self._give_back(session, where)
        self.sessions.forget_group_if_empty(session.key.group_id)

    async def _give_back(self, session: ShareSession, where: Where) -> None:
        key = ShareKey(session.key.group_id, *where)
        led = self.partitions.find(key)
        if led is None:
            return
        try:
            await self.partitions.release(led, session.key.member_id)
        except KafkaError as error:
            # The locks end by themselves.
            log.info("records of %s are not given back: %s", key.name, error)

    async def _in_turns(self, places: Iterable[Where]) -> AsyncIterator[Where]:
        ends_at = await self._next_turn()
        for where in places:
            yield where
            if time.perf_counter() > ends_at:
                ends_at = await self._next_turn()

    async def _next_turn(self) -> float:
        """When it is over."""
        async with self._turn:
            await asyncio.sleep(_REST_SECONDS)
        return time.perf_counter() + _TURN_SECONDS
