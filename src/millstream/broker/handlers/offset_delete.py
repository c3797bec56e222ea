"""OffsetDelete (47), version 0: forget offsets of topics that the group no longer reads."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from millstream.broker.coordination.coordinators import GroupCoordinators
from millstream.broker.coordination.transactions import wait_for
from millstream.broker.requests.pacing import Each
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import Turns
from millstream.coordinators.groups import offsets
from millstream.coordinators.groups.offsets import CommitReply
from millstream.errors import KafkaCode, KafkaError
from millstream.replication.admission import Refusal
from millstream.security.acl import ResourceType
from millstream.wire.apis.offset_delete import (
    OffsetDeletePartitionResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteTopic,
    OffsetDeleteTopicResponse,
)

Denials = Mapping[str, Refusal | None]
# Names of topics, each with partitions.
Part = list[tuple[str, list[int]]]

# So many are looked up, and forgotten, in one step.
_AT_ONCE_MAX: Final = 500


async def handle(
    groups: GroupCoordinators,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    body: OffsetDeleteRequest,
) -> OffsetDeleteResponse:
    denied_group = permissions.denial(request, ResourceType.GROUP, body.group_id)
    if denied_group is not None:
        return OffsetDeleteResponse(error_code=denied_group.code, topics=[])
    denials = {
        topic.name: permissions.denial(request, ResourceType.TOPIC, topic.name)
        async for topic in turns.each(request, body.topics)
    }
    codes: list[KafkaCode] = []
    try:
        async for part in turns.each(request, _parts(body.topics, denials)):
            codes += await _delete(groups, body.group_id, part)
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=error.code, topics=[])
    found = iter(codes)
    topics = await turns.prepared(
        request, lambda each: [_shown(each, topic, denials, found) for topic in body.topics]
    )
    return OffsetDeleteResponse(error_code=KafkaCode.NONE, topics=topics)


def _parts(topics: Sequence[OffsetDeleteTopic], denials: Denials) -> Iterator[Part]:
    """What is not denied, in parts. At least one if nothing is: the group may not exist."""
    part: Part = []
    size = 0
    for topic in topics:
        for start in range(0, len(topic.partitions), _AT_ONCE_MAX):
            if denials[topic.name] is None:
                some = topic.partitions[start : start + _AT_ONCE_MAX]
                part.append((topic.name, [one.partition_index for one in some]))
                size += len(some)
                if size >= _AT_ONCE_MAX:
                    yield part
                    part, size = [], 0
    if part or all(denied is None for denied in denials.values()):
        yield part


async def _delete(groups: GroupCoordinators, group_id: str, part: Part) -> Iterator[KafkaCode]:
    """Raises KafkaError."""
    codes: CommitReply = await wait_for(
        groups.submit(group_id, lambda state, env: offsets.delete(state, group_id, part))
    )
    return chain.from_iterable(codes)


def _shown(
    each: Each, topic: OffsetDeleteTopic, denials: Denials, found: Iterator[KafkaCode]
) -> OffsetDeleteTopicResponse:
    denied = denials[topic.name]
    return OffsetDeleteTopicResponse(
        name=topic.name,
        partitions=[
            OffsetDeletePartitionResponse(
                partition_index=one.partition_index,
                error_code=next(found) if denied is None else denied.code,
            )
            for one in each(topic.partitions)
        ],
    )
