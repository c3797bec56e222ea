"""What one client may hold in the groups of this node: members, and the bytes that they bring.

Counted are members, also those that were only given an id, what they sent, and what follows from
it: assignments of leaders, the topics that patterns match, topologies, and share partitions. A
client is a user at an address, or the address where nobody logs in.

The groups themselves are the truth: they are counted again when a second has passed, and what is
admitted in between is added. So nothing has to be given back when a member leaves.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from millstream.coordinators.classic.group import ClassicGroup
from millstream.coordinators.consumer.group import ConsumerGroup
from millstream.coordinators.groups.state import Group
from millstream.coordinators.share.group import ShareGroup
from millstream.coordinators.streams.group import StreamsGroup
from millstream.errors import KafkaCode, KafkaError

MEMBERS_MAX: Final = 10_000
METADATA_BYTES_MAX: Final = 64 << 20
_COUNT_EVERY_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request: the client, and its host as groups know it."""

    client: str
    host: str


class MemberQuota:
    def __init__(self) -> None:
        self._counted_at_ms: int | None = None
        # By client.
        self._members: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        # Groups know hosts. By group and host the client that was last admitted from there, and
        # the last of a group at the end. After a restart a host counts as the client that nobody
        # has logged in as, until it brings something again.
        self._clients: dict[str, dict[str, str]] = {}

    def admit(
        self,
        caller: Caller,
        group_id: str,
        groups: Iterable[Group],
        *,
        members: int,
        size_bytes: int,
        now_ms: int,
    ) -> None:
        """Raises KafkaError where the client has no room for so many more members and bytes."""
        if self._counted_at_ms is None or now_ms - self._counted_at_ms >= _COUNT_EVERY_MS:
            self._count(groups)
            self._counted_at_ms = now_ms
        client = caller.client
        members += self._members[client]
        size_bytes += self._bytes[client]
        # Those of a client that has too many members may still change.
        has_room = members == self._members[client] or members <= MEMBERS_MAX
        if not has_room or size_bytes > METADATA_BYTES_MAX:
            raise KafkaError(
                KafkaCode.GROUP_MAX_SIZE_REACHED, "too many or too large members of one client"
            )
        self._members[client] = members
        self._bytes[client] = size_bytes
        clients = self._clients.setdefault(group_id, {})
        clients.pop(caller.host, None)
        clients[caller.host] = client

    def _count(self, groups: Iterable[Group]) -> None:
        self._members.clear()
        self._bytes.clear()
        known, self._clients = self._clients, {}
        for group in groups:
            clients = known.get(group.group_id, {})
            hosts = self._count_members(group, clients)
            last = next(reversed(clients), next(iter(hosts), None))
            if last is None:
                continue
            self._bytes[_client(last, clients)] += shared_bytes(group)
            # In the same order.
            left = {host: each for host, each in clients.items() if host in hosts or host == last}
            if left:
                self._clients[group.group_id] = left

    def _count_members(self, group: Group, clients: dict[str, str]) -> dict[str, None]:
        """Returns their hosts."""
        hosts: dict[str, None] = {}
        for host, size_bytes in _members(group):
            hosts[host] = None
            client = _client(host, clients)
            self._members[client] += 1
            self._bytes[client] += size_bytes
        return hosts


def _client(host: str, clients: dict[str, str]) -> str:
    return clients.get(host) or host.removeprefix("/")


def _members(group: Group) -> Iterable[tuple[str, int]]:
    """The host and the bytes of each."""
    if isinstance(group, ClassicGroup):
        for classic in group.members.values():
            yield classic.client_host, classic.size_bytes
        for member_id, host in group.pending_members.items():
            yield host, len(member_id)
        return
    for member in group.members.values():
        yield member.stored.client_host, member.size_bytes


def member_bytes(group: Group | None, member_id: str) -> int | None:
    """What a member holds; None where there is no such member."""
    if group is None or not member_id:
        return None
    if isinstance(group, ClassicGroup) and member_id in group.pending_members:
        return 0
    member = group.members.get(member_id)
    return None if member is None else member.size_bytes


def shared_bytes(group: Group) -> int:
    """What the members of a group hold together."""
    match group:
        case ClassicGroup():
            return assignment_bytes(group)
        case ConsumerGroup():
            return sum(group.pattern_bytes.values())
        case ShareGroup():
            return group.topics_bytes
        case StreamsGroup():
            return group.topology_bytes


def assignment_bytes(group: Group | None) -> int:
    """What leaders assigned."""
    if not isinstance(group, ClassicGroup):
        return 0
    return sum(len(member.assignment) for member in group.members.values())
