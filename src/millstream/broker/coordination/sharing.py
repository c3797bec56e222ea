"""Everything of share groups on this node, created when the first client asks for one."""

import logging
from typing import Final

from millstream.broker.coordination.coordinators import GroupCoordinators
from millstream.broker.coordination.dead_letters import DeadLetters
from millstream.broker.coordination.share_coordinator import ShareCoordinator
from millstream.broker.coordination.share_partitions import SharePartitions
from millstream.broker.coordination.share_sessions import ShareSession, ShareSessions
from millstream.broker.coordination.share_state import ShareStateStore
from millstream.broker.node.state import NodeState
from millstream.broker.node.topics import Topics
from millstream.cluster.state import TopicState
from millstream.coordinators.codecs.share_state import ShareKey
from millstream.errors import KafkaError

log = logging.getLogger(__name__)

_SESSIONS_MAX: Final = "group.share.max.share.sessions"


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
            self._connection_closed,
            self.partitions.forget_group,
        )

    def start(self) -> None:
        self.coordinator.start()

    async def stop(self) -> None:
        await self.partitions.stop()
        await self.coordinator.stop()

    def topic_deleted(self, topic: TopicState) -> None:
        self.partitions.forget_topic(topic.topic_id)
        self.coordinator.topic_is_gone(topic.topic_id)

    def _connection_closed(self, session: ShareSession) -> None:
        self.partitions.spawn(self.end_session(session))

    async def end_session(self, session: ShareSession) -> None:
        """Give back what the member has acquired, and forget the session."""
        self.sessions.end(session)
        for where in session.partitions:
            key = ShareKey(session.key.group_id, *where)
            led = self.partitions.find(key)
            if led is None:
                continue
            try:
                await self.partitions.release(led, session.key.member_id)
            except KafkaError as error:
                # The locks end by themselves.
                log.info("records of %s are not given back: %s", key.name, error)
        self.sessions.forget_group_if_empty(session.key.group_id)
