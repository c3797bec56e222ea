"""Share sessions: what a member fetches on this node, so that requests need not repeat it.

A member has at most one session on a node. Each request carries the session's epoch, which
shows that none was lost or repeated. A session ends with its last request or with its
connection; then what the member had acquired is available to others.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from millstream.errors import KafkaCode, KafkaError

# Epochs with a special meaning: a new session, and the last request of one.
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_EPOCH_MAX: Final = 2**31 - 1


class SessionKey(NamedTuple):
    group_id: str
    member_id: str


class Where(NamedTuple):
    topic_id: UUID
    partition: int


class SessionConnection(Protocol):
    """A connection calls `on_closed` once, when it is closed."""

    on_closed: Callable[[], None] | None


@dataclass(slots=True, eq=False)
class ShareSession:
    key: SessionKey
    connection: SessionConnection
    # The epoch of the next request.
    epoch: int
    # In the order in which they were added; the values mean nothing.
    partitions: dict[Where, None] = field(default_factory=dict)

    def rotated(self, by: int) -> list[Where]:
        """So that no partition is always the first to fill a response."""
        found = list(self.partitions)
        if not found:
            return found
        begin = max(by, 0) % len(found)
        return found[begin:] + found[:begin]


class ShareSessions:
    def __init__(
        self,
        sessions_max: Callable[[], int],
        on_ended: Callable[[ShareSession], None],
        on_group_empty: Callable[[str], None],
    ) -> None:
        """`on_ended` is called with a session whose connection was closed; `on_group_empty` when a
        group has no session left on this node."""
        self._sessions_max = sessions_max
        self._on_ended = on_ended
        self._on_group_empty = on_group_empty
        self._sessions: dict[SessionKey, ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self, key: SessionKey, connection: SessionConnection, partitions: Iterable[Where]
    ) -> ShareSession:
        """A new session instead of any earlier one. Raises KafkaError."""
        self._sessions.pop(key, None)
        if len(self._sessions) >= self._sessions_max():
            raise KafkaError(KafkaCode.SHARE_SESSION_LIMIT_REACHED)
        if not self._has_group(key.group_id):
            # Whatever is known of the group here may be outdated.
            self._on_group_empty(key.group_id)
        session = ShareSession(key, connection, 1, dict.fromkeys(partitions))
        self._sessions[key] = session
        connection.on_closed = lambda: self._closed(connection)
        return session

    def _closed(self, connection: SessionConnection) -> None:
        for session in [one for one in self._sessions.values() if one.connection is connection]:
            self.end(session)
            self._on_ended(session)

    def require(self, key: SessionKey) -> ShareSession:
        session = self._sessions.get(key)
        if session is None:
            raise KafkaError(KafkaCode.SHARE_SESSION_NOT_FOUND)
        return session

    def resume(self, key: SessionKey, epoch: int) -> ShareSession:
        """The session of the next request. Raises KafkaError."""
        session = self.require(key)
        if session.epoch != epoch:
            raise KafkaError(KafkaCode.INVALID_SHARE_SESSION_EPOCH)
        session.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
        return session

    def is_open(self, session: ShareSession) -> bool:
        return self._sessions.get(session.key) is session

    def end(self, session: ShareSession) -> None:
        if self.is_open(session):
            del self._sessions[session.key]

    def forget_group_if_empty(self, group_id: str) -> None:
        if not self._has_group(group_id):
            self._on_group_empty(group_id)

    def _has_group(self, group_id: str) -> bool:
        return any(key.group_id == group_id for key in self._sessions)
