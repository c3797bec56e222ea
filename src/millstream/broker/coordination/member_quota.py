"""What the members that come from one address may hold in the groups of this node.

The members themselves are the truth: they are counted again when a second has passed, and
joins in between are added. So nothing has to be given back when a member leaves.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from millstream.coordinators.classic.group import ClassicGroup, protocols_bytes
from millstream.coordinators.groups.state import Group
from millstream.coordinators.streams.group import StreamsGroup
from millstream.errors import KafkaCode, KafkaError

MEMBERS_MAX: Final = 10_000
METADATA_BYTES_MAX: Final = 64 << 20
_COUNT_EVERY_MS: Final = 1_000


class MemberQuota:
    def __init__(self) -> None:
        self._counted_at_ms: int | None = None
        # By address.
        self._members: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()

    def admit(self, address: str, size_bytes: int, groups: Iterable[Group], *, now_ms: int) -> None:
        """Raises KafkaError where the address has no room for another member of this size."""
        if self._counted_at_ms is None or now_ms - self._counted_at_ms >= _COUNT_EVERY_MS:
            self._count(groups)
            self._counted_at_ms = now_ms
        self._members[address] += 1
        self._bytes[address] += size_bytes
        if self._members[address] > MEMBERS_MAX or self._bytes[address] > METADATA_BYTES_MAX:
            raise KafkaError(
                KafkaCode.GROUP_MAX_SIZE_REACHED, "too many or too large members from one address"
            )

    def _count(self, groups: Iterable[Group]) -> None:
        self._members.clear()
        self._bytes.clear()
        for group in groups:
            if isinstance(group, ClassicGroup):
                for member in group.members.values():
                    self._members[member.client_host] += 1
                    self._bytes[member.client_host] += protocols_bytes(member.protocols)
            elif isinstance(group, StreamsGroup):
                # All members share one topology.
                for member_of_streams in group.members.values():
                    self._members[member_of_streams.stored.client_host] += 1
            else:
                for consumer in group.members.values():
                    stored = consumer.stored
                    self._members[stored.client_host] += 1
                    self._bytes[stored.client_host] += sum(map(len, stored.topics))
