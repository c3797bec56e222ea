"""A classic group: its members, its leader, and the protocol they share.

State, and questions about it; `protocol` and `rebalance` change it. A record holds a group
only when it has become stable or empty. Everything in between lives in memory, and after a
restart the members start over. The first member leads; `remove` passes the lead on, and
`rebalance` replaces a leader that did not join in time.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import field
from enum import Enum

from millstream.coordinators.codecs.changes import StoredGroup, StoredMember
from millstream.coordinators.codecs.embedded import CONSUMER_PROTOCOL, decode_subscription
from millstream.coordinators.decision import Ticket
from millstream.coordinators.sizes import optional_texts_bytes, protocols_bytes
from millstream.errors import KafkaCode, KafkaError
from millstream.lazy_dataclass import dataclass

Protocols = tuple[tuple[str, bytes], ...]


class ClassicState(Enum):
    """Named as in DescribeGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


@dataclass(slots=True)
class ClassicMember:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    # Joined, and in no generation yet: it cannot send heartbeats while its join waits.
    is_new: bool = False
    join_ticket: Ticket | None = None
    sync_ticket: Ticket | None = None
    # What it has sent takes so much.
    size_bytes: int = field(init=False, default=0)
    # How many members of its group support each protocol; None outside of groups.
    _support: Counter[str] | None = field(init=False, default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.set_protocols(self.protocols)

    def set_protocols(self, protocols: Protocols) -> None:
        support = self._support
        self.count_in(None)
        self.protocols = protocols
        self.count_in(support)
        self.size_bytes = protocols_bytes(protocols) + optional_texts_bytes(
            self.member_id, self.instance_id, self.client_id
        )

    def count_in(self, support: Counter[str] | None) -> None:
        """Count among those that support its protocols there, and nowhere else."""
        names = self.protocol_names
        if self._support is not None:
            self._support.subtract(names)
            for name in names:
                if not self._support[name]:
                    del self._support[name]
        if support is not None:
            support.update(names)
        self._support = support

    def metadata(self, protocol_name: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""

    @property
    def protocol_names(self) -> set[str]:
        return {name for name, _ in self.protocols}


@dataclass(slots=True)
class ClassicGroup:
    group_id: str
    state: ClassicState = ClassicState.EMPTY
    # None for a group that has only committed offsets.
    protocol_type: str | None = None
    protocol_name: str | None = None
    generation: int = 0
    leader_id: str | None = None
    state_timestamp_ms: int = -1
    members: dict[str, ClassicMember] = field(default_factory=dict)
    # Member ids by instance id.
    static_members: dict[str, str] = field(default_factory=dict)
    # Ids given to members that must join again with them, and the host of each.
    pending_members: dict[str, str] = field(default_factory=dict)
    # Members that have still to sync in this generation.
    pending_sync: set[str] = field(default_factory=set)
    # While a new group waits for more members: how long it may wait, and whether one joined.
    initial_wait_left_ms: int | None = None
    has_member_come: bool = False
    # How long the first member, the leader, needs before it can assign anything.
    first_wait_ms: int = 0
    subscribed_topics: frozenset[str] | None = None
    # How many members support each protocol: a join asks before anything is known of its sender.
    _support: Counter[str] = field(init=False, default_factory=Counter, repr=False, compare=False)

    def __post_init__(self) -> None:
        for member in self.members.values():
            member.count_in(self._support)

    # -- members ----------------------------------------------------------------------

    def member(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """The member that claims this id. Raises KafkaError."""
        if instance_id is not None:
            current = self.static_members.get(instance_id)
            if current is None:
                raise KafkaError(KafkaCode.UNKNOWN_MEMBER_ID)
            if current != member_id:
                raise KafkaError(KafkaCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(KafkaCode.UNKNOWN_MEMBER_ID)
        return member

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        self.members[member.member_id] = member
        member.count_in(self._support)
        self.pending_members.pop(member.member_id, None)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member_id: str) -> ClassicMember:
        member = self.members.pop(member_id)
        member.count_in(None)
        if member.instance_id is not None:
            self.static_members.pop(member.instance_id, None)
        self.pending_sync.discard(member_id)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def rename(self, instance_id: str, new_id: str) -> ClassicMember:
        """A static member is back: it keeps its place under a new id."""
        old_id = self.static_members[instance_id]
        member = self.members[old_id]
        # In place, so that the order of members, and with it the assignment, stays.
        self.members = {
            (new_id if each.member_id == old_id else each.member_id): each
            for each in self.members.values()
        }
        member.member_id = new_id
        self.static_members[instance_id] = new_id
        if old_id in self.pending_sync:
            self.pending_sync.remove(old_id)
            self.pending_sync.add(new_id)
        if self.leader_id == old_id:
            self.leader_id = new_id
        return member

    @property
    def is_joined_by_all(self) -> bool:
        return not self.pending_members and all(
            member.join_ticket is not None for member in self.members.values()
        )

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # -- protocols --------------------------------------------------------------------

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        if self.state is ClassicState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        if protocol_type != self.protocol_type:
            return False
        return any(self._is_shared(name) for name, _ in protocols)

    def _is_shared(self, protocol_name: str) -> bool:
        return self._support.get(protocol_name) == len(self.members)

    def select_protocol(self) -> str:
        """The protocol that most members prefer, among those that all of them support."""
        votes: dict[str, int] = {}
        for member in self.members.values():
            vote = next(name for name, _ in member.protocols if self._is_shared(name))
            votes[vote] = votes.get(vote, 0) + 1
        return max(votes, key=lambda name: votes[name])

    @property
    def is_of_consumers(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL

    def is_subscribed_to(self, topic: str) -> bool:
        if self.subscribed_topics is not None:
            return topic in self.subscribed_topics
        # If a consumer's subscription cannot be parsed, it may read anything.
        return self.is_of_consumers and bool(self.members)

    def note_subscriptions(self) -> None:
        """Learn which topics the members read, if they are consumers and declare it."""
        self.subscribed_topics = None
        if not self.members:
            self.subscribed_topics = frozenset() if self.is_of_consumers else None
            return
        if not self.is_of_consumers or self.protocol_name is None:
            return
        topics: set[str] = set()
        for member in self.members.values():
            try:
                topics.update(decode_subscription(member.metadata(self.protocol_name)).topics)
            except ValueError:
                return
        self.subscribed_topics = frozenset(topics)

    # -- records ----------------------------------------------------------------------

    def stored(self, assignments: dict[str, bytes], now_ms: int) -> StoredGroup:
        """The group as its record, with these assignments by member id."""
        return StoredGroup(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol_name=self.protocol_name,
            leader_id=self.leader_id,
            state_timestamp_ms=now_ms,
            members=[
                StoredMember(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.rebalance_timeout_ms,
                    member.session_timeout_ms,
                    member.metadata(self.protocol_name),
                    assignments.get(member.member_id, b""),
                )
                for member in self.members.values()
            ],
        )

    def take_over(self, stored: StoredGroup) -> None:
        """Become what the record says. Waiting members and the other protocols stay known."""
        self.protocol_type = stored.protocol_type or None
        self.generation = stored.generation
        self.protocol_name = stored.protocol_name
        self.leader_id = stored.leader_id
        self.state_timestamp_ms = stored.state_timestamp_ms
        before = self.members
        self.members = {row.member_id: self._member_from(row, stored) for row in stored.members}
        for member_id in before.keys() - self.members.keys():
            before[member_id].count_in(None)
        for member_id in self.members.keys() - before.keys():
            self.members[member_id].count_in(self._support)
        self.static_members = static_ids(self.members.values())
        self.state = ClassicState.STABLE if self.members else ClassicState.EMPTY
        self.note_subscriptions()

    def _member_from(self, row: StoredMember, stored: StoredGroup) -> ClassicMember:
        member = self.members.get(row.member_id)
        if member is None:
            member = ClassicMember(
                row.member_id,
                row.instance_id,
                row.client_id,
                row.client_host,
                row.rebalance_timeout_ms,
                row.session_timeout_ms,
                ((stored.protocol_name or "", row.subscription),),
            )
        member.assignment = row.assignment
        return member


def static_ids(members: Iterable[ClassicMember]) -> dict[str, str]:
    """Member ids by instance id."""
    return {m.instance_id: m.member_id for m in members if m.instance_id is not None}
