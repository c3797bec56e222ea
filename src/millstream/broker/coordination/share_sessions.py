"""Share sessions: what a member fetches on this node, so that requests need not repeat it.

A member has at most one session on a node. Each request carries the session's epoch, which
shows that none was lost or repeated. A session ends with its last request or with its
connection; then what the member had acquired is available to others.

A client (a user at an address, or an address where nobody logs in) must not take all slots: when
none is left, the one with the most sessions loses one to a client with fewer.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from millstream.errors import KafkaCode, KafkaError

# Epochs with a special meaning: a new session, and the last request of one.
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_EPOCH_MAX: Final = 2**31 - 1
# In all sessions of one client.
CLIENT_PARTITIONS_MAX: Final = 100_000


class SessionKey(NamedTuple):
    group_id: str
    member_id: str


class Where(NamedTuple):
    topic_id: UUID
    partition: int


class SessionConnection(Protocol):
    """A connection calls `on_closed` once, when it is closed."""

    client: str
    is_closed: bool
    on_closed: Callable[[], None] | None


@dataclass(slots=True, eq=False)
class ShareSession:
    key: SessionKey
    connection: SessionConnection
    client: str
    # The epoch of the next request.
    epoch: int
    # In the order in which they were added; the values mean nothing.
    partitions: dict[Where, None] = field(default_factory=dict)
    # Those that do not exist. One response reports them. Kafka repeats them in every response,
    # which makes a short request expensive.
    absent: dict[Where, None] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return len(self.partitions) + len(self.absent)

    def has(self, where: Where) -> bool:
        return where in self.partitions or where in self.absent

    def add(self, partitions: Iterable[Where]) -> None:
        for where in partitions:
            self.absent.pop(where, None)
            self.partitions.setdefault(where)

    def forget(self, where: Where) -> None:
        self.partitions.pop(where, None)
        self.absent.pop(where, None)

    def set_aside(self, where: Where) -> None:
        """It does not exist, and this response says so."""
        if where in self.partitions:
            del self.partitions[where]
            self.absent[where] = None

    def take_back(self, exists: Callable[[Where], bool]) -> None:
        """Those that exist by now: a client may hear of a topic earlier than this node."""
        for where in [each for each in self.absent if exists(each)]:
            del self.absent[where]
            self.partitions[where] = None

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
        on_ended: Callable[[Sequence[ShareSession]], None],
        on_group_empty: Callable[[str], None],
    ) -> None:
        """`on_ended` is called with sessions that their client did not end: those of a connection
        that was closed, or one whose slot another client got; `on_group_empty` when a group has no
        session left on this node."""
        self._sessions_max = sessions_max
        self._on_ended = on_ended
        self._on_group_empty = on_group_empty
        # Least recently used first.
        self._sessions: dict[SessionKey, ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self, key: SessionKey, connection: SessionConnection, partitions: Iterable[Where]
    ) -> ShareSession:
        """A new session instead of any earlier one. Raises KafkaError."""
        if connection.is_closed:
            # While its request was read in a thread: nobody would end this session.
            raise KafkaError(KafkaCode.SHARE_SESSION_NOT_FOUND, "the connection is closed")
        session = ShareSession(key, connection, connection.client, 1, dict.fromkeys(partitions))
        self._sessions.pop(key, None)
        self._admit(session.client, session.size)
        if len(self._sessions) >= self._sessions_max():
            self._take_from_greediest(session.client)
        if not self._has_group(key.group_id):
            # Whatever is known of the group here may be outdated.
            self._on_group_empty(key.group_id)
        self._sessions[key] = session
        connection.on_closed = lambda: self._closed(connection)
        return session

    def add(self, session: ShareSession, partitions: Iterable[Where]) -> None:
        """Raises KafkaError: nothing is added then."""
        added = dict.fromkeys(partitions)
        grown = sum(not session.has(where) for where in added)
        if grown:
            self._admit(session.client, grown)
        session.add(added)

    def _admit(self, client: str, partitions: int) -> None:
        held = sum(each.size for each in self._sessions.values() if each.client == client)
        if held + partitions > CLIENT_PARTITIONS_MAX:
            text = f"{client} has {CLIENT_PARTITIONS_MAX:,} partitions in share sessions"
            raise KafkaError(KafkaCode.SHARE_SESSION_LIMIT_REACHED, text)

    def _take_from_greediest(self, client: str) -> None:
        """Raises KafkaError if nobody has more than this client would have. One that loses its
        session opens a new one."""
        counts = Counter(session.client for session in self._sessions.values())
        greediest, count = counts.most_common(1)[0] if counts else (client, 0)
        if count <= counts[client] + 1:
            raise KafkaError(KafkaCode.SHARE_SESSION_LIMIT_REACHED)
        lost = next(each for each in self._sessions.values() if each.client == greediest)
        self.end(lost)
        self._on_ended([lost])

    def _closed(self, connection: SessionConnection) -> None:
        ended = [one for one in self._sessions.values() if one.connection is connection]
        for session in ended:
            self.end(session)
        if ended:
            self._on_ended(ended)

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
        self._sessions[key] = self._sessions.pop(key)
        return session

    def has(self, key: SessionKey) -> bool:
        return key in self._sessions

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
