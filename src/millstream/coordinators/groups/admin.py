"""Groups as administrators see them: list, describe, delete, and what expires.

A group with members cannot be deleted (NON_EMPTY_GROUP). One without members is forgotten when
it has no offsets, or the last of them expires (`expire_offsets`); a share group stays until it is
deleted.
"""

from collections.abc import Collection
from uuid import UUID

from millstream.coordinators.classic.group import ClassicGroup, ClassicState
from millstream.coordinators.codecs.changes import (
    Change,
    ConsumerGroupChange,
    GroupChange,
    PatternChange,
    TargetChange,
)
from millstream.coordinators.codecs.embedded import CONSUMER_PROTOCOL
from millstream.coordinators.consumer.group import ConsumerGroup
from millstream.coordinators.decision import Decision, Env
from millstream.coordinators.groups import offsets
from millstream.coordinators.groups.state import Group, ShardState
from millstream.coordinators.share import admin as share_admin
from millstream.coordinators.share.group import ShareGroup
from millstream.coordinators.streams import epochs as streams_epochs
from millstream.coordinators.streams.group import StreamsGroup
from millstream.errors import KafkaCode, KafkaError
from millstream.lazy_dataclass import dataclass

DEAD = "Dead"
SHARE_PROTOCOL = "share"
_STREAMS_PROTOCOL = "streams"


@dataclass(slots=True)
class ListedGroup:
    group_id: str
    protocol_type: str
    state: str
    type: str


@dataclass(slots=True)
class DescribedMember:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(slots=True)
class DescribedGroup:
    group_id: str
    state: str = DEAD
    protocol_type: str = ""
    protocol_name: str = ""
    members: tuple[DescribedMember, ...] = ()


def list_groups(
    state: ShardState, *, states: Collection[str], types: Collection[str]
) -> list[ListedGroup]:
    """Empty filters match everything; case does not matter."""
    wanted_states = {name.lower() for name in states}
    wanted_types = {name.lower() for name in types}
    return [
        row
        for row in (_listed(group) for group in state.groups.values())
        if (not wanted_states or row.state.lower() in wanted_states)
        and (not wanted_types or row.type.lower() in wanted_types)
    ]


def _listed(group: Group) -> ListedGroup:
    if isinstance(group, ConsumerGroup):
        return ListedGroup(group.group_id, CONSUMER_PROTOCOL, group.state_name, "consumer")
    if isinstance(group, ShareGroup):
        return ListedGroup(group.group_id, SHARE_PROTOCOL, group.state_name, "share")
    if isinstance(group, StreamsGroup):
        return ListedGroup(group.group_id, _STREAMS_PROTOCOL, group.state_name, "streams")
    return ListedGroup(group.group_id, group.protocol_type or "", group.state.value, "classic")


def describe(state: ShardState, group_id: str) -> Decision[DescribedGroup]:
    group = state.groups.get(group_id)
    if not isinstance(group, ClassicGroup):
        raise KafkaError(
            KafkaCode.GROUP_ID_NOT_FOUND,
            f"Group {group_id} is not a classic group."
            if group is not None
            else f"Group {group_id} not found.",
        )
    is_stable = group.state is ClassicState.STABLE
    return Decision(
        reply=DescribedGroup(
            group_id,
            group.state.value,
            group.protocol_type or "",
            (group.protocol_name or "") if is_stable else "",
            tuple(
                DescribedMember(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    # Between two generations there is no protocol that all have agreed on.
                    member.metadata(group.protocol_name) if is_stable else b"",
                    member.assignment if is_stable else b"",
                )
                for member in group.members.values()
            ),
        )
    )


def delete_group(state: ShardState, group_id: str) -> Decision[KafkaCode]:
    group = state.group(group_id)
    if not is_empty(group):
        raise KafkaError(KafkaCode.NON_EMPTY_GROUP)
    return Decision(
        reply=KafkaCode.NONE,
        records=[*offsets.tombstones(state, group_id), *group_tombstones(group)],
    )


def forget_shared(state: ShardState, topic_id: UUID) -> dict[str, list[Change]]:
    """By share group: the records that forget a deleted topic."""
    return {
        group.group_id: records
        for group in state.groups.values()
        if isinstance(group, ShareGroup) and (records := share_admin.without_topic(group, topic_id))
    }


def is_share_group(state: ShardState, group_id: str) -> bool:
    return isinstance(state.groups.get(group_id), ShareGroup)


def is_empty(group: Group) -> bool:
    if isinstance(group, ClassicGroup):
        return group.state is ClassicState.EMPTY
    return not group.members


def group_tombstones(group: Group) -> list[Change]:
    """The records that remove a group without members."""
    if isinstance(group, ClassicGroup):
        return [GroupChange(group.group_id, None)]
    if isinstance(group, ShareGroup):
        return share_admin.group_tombstones(group)
    if isinstance(group, StreamsGroup):
        return streams_epochs.group_tombstones(group)
    patterns: list[Change] = [
        PatternChange(group.group_id, pattern, None) for pattern in group.patterns
    ]
    return [
        *patterns,
        TargetChange(group.group_id, None),
        ConsumerGroupChange(group.group_id, None),
    ]


def expire_offsets(state: ShardState, group_id: str, env: Env) -> Decision[None]:
    """Expire old offsets, and a group without offsets and members."""
    group = state.groups.get(group_id)
    if group is None or isinstance(group, ShareGroup):
        # A share group stays until it is deleted.
        return Decision()
    records: list[Change] = list(offsets.expired(state, group_id, env))
    left = sum(len(partitions) for partitions in state.offsets.get(group_id, {}).values())
    if len(records) == left and is_empty(group):
        records += group_tombstones(group)
    return Decision(records=records)
