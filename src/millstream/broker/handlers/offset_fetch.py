"""OffsetFetch (9), versions 1-10: several groups from version 8, topics by id from 10."""

from collections.abc import Coroutine, Iterator, Sequence
from typing import Any, Final

from millstream.broker.coordination.coordinators import GroupCoordinators
from millstream.broker.node.state import NodeState
from millstream.broker.requests.pacing import Each
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import Turns, Weight, once
from millstream.coordinators.codecs.changes import CommittedOffset
from millstream.coordinators.groups import offsets
from millstream.coordinators.groups.offsets import FetchedTopic
from millstream.errors import KafkaCode, KafkaError
from millstream.model import NO_TOPIC_ID, TopicId
from millstream.security.acl import ResourceType
from millstream.security.operations import LISTING
from millstream.wire.apis.offset_fetch import (
    OffsetFetchGroup,
    OffsetFetchGroupResponse,
    OffsetFetchPartition,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopic,
    OffsetFetchTopicResponse,
)

BATCHED_FROM: Final = 8
BY_ID_FROM: Final = 10
# Before version 2 the response has no field for an error of the group.
TOP_LEVEL_ERROR_FROM: Final = 2
_PARTITIONS_AT_ONCE_MAX: Final = 500
_TOPIC: Final = ResourceType.TOPIC


def handle(
    node: NodeState,
    groups: GroupCoordinators,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    body: OffsetFetchRequest,
) -> OffsetFetchResponse | Coroutine[Any, Any, OffsetFetchResponse]:
    is_batched = request.version >= BATCHED_FROM
    alone = OffsetFetchGroup(group_id=body.group_id, topics=body.topics)

    def show(answers: list[OffsetFetchGroupResponse]) -> OffsetFetchResponse:
        return OffsetFetchResponse(groups=answers) if is_batched else _of_one_group(answers[0])

    return turns.prepare(
        request,
        lambda each: (
            once(each(body.groups), key=lambda group: group.group_id) if is_batched else [alone]
        ),
        lambda wanted: turns.answer_each(
            request,
            (part for group in wanted for part in _parts(group)),
            lambda group: _fetch(node, groups, permissions, request, group, body.require_stable),
            lambda parts: turns.prepare(request, lambda each: _merged(each, parts), show),
            Weight(_weight, lambda group: _group(group.group_id, KafkaCode.INVALID_REQUEST, [])),
            # A consumer names its partitions; where none are named, all offsets are shown.
            is_each_small=len(wanted) == 1 and wanted[0].topics is not None,
        ),
    )


def _parts(group: OffsetFetchGroup) -> Iterator[OffsetFetchGroup]:
    """A group in parts that can be answered quickly; nearly always the only one."""
    topics: list[OffsetFetchTopic] = []
    size = 0
    for topic in group.topics or ():
        for chunk in _chunks(topic.partition_indexes):
            topics.append(
                OffsetFetchTopic(name=topic.name, topic_id=topic.topic_id, partition_indexes=chunk)
            )
            size += 1 + len(chunk)
            if size > _PARTITIONS_AT_ONCE_MAX:
                yield _part(group, topics)
                topics, size = [], 0
    if topics or not group.topics:
        yield _part(group, topics if group.topics is not None else None)


def _chunks(indexes: list[int]) -> Iterator[list[int]]:
    """Each index once. At least one chunk, also of no indexes."""
    if len(indexes) <= _PARTITIONS_AT_ONCE_MAX:
        yield list(dict.fromkeys(indexes))
        return
    seen: set[int] = set()
    for start in range(0, len(indexes), _PARTITIONS_AT_ONCE_MAX):
        some = dict.fromkeys(indexes[start : start + _PARTITIONS_AT_ONCE_MAX])
        if new := [index for index in some if index not in seen]:
            yield new
        seen.update(new)


def _part(group: OffsetFetchGroup, topics: list[OffsetFetchTopic] | None) -> OffsetFetchGroup:
    return OffsetFetchGroup(
        group_id=group.group_id,
        member_id=group.member_id,
        member_epoch=group.member_epoch,
        topics=topics,
    )


def _merged(each: Each, parts: list[OffsetFetchGroupResponse]) -> list[OffsetFetchGroupResponse]:
    """The parts of each group together."""
    groups: dict[str, OffsetFetchGroupResponse] = {}
    for part in each(parts):
        whole = groups.setdefault(part.group_id, part)
        if whole is part:
            continue
        whole.error_code = whole.error_code or part.error_code
        for topic in part.topics:
            last = whole.topics[-1] if whole.topics else None
            if last is not None and (last.name, last.topic_id) == (topic.name, topic.topic_id):
                last.partitions += topic.partitions
            else:
                whole.topics.append(topic)
    return list(groups.values())


def _weight(group: OffsetFetchGroupResponse) -> int:
    return 50 + sum(
        20 + len(topic.name) + sum(30 + len(row.metadata or "") for row in topic.partitions)
        for topic in group.topics
    )


def _of_one_group(group: OffsetFetchGroupResponse) -> OffsetFetchResponse:
    return OffsetFetchResponse(topics=group.topics, error_code=group.error_code)


def _fetch(
    node: NodeState,
    groups: GroupCoordinators,
    permissions: Permissions,
    request: Request,
    group: OffsetFetchGroup,
    require_stable: bool,
) -> OffsetFetchGroupResponse | Coroutine[Any, Any, OffsetFetchGroupResponse]:
    by_id = request.version >= BY_ID_FROM
    unknown: list[OffsetFetchTopicResponse] = []
    topics: list[tuple[str, Sequence[int]]] | None = None
    if group.topics is not None:
        topics = []
        for topic in group.topics:
            name = _name(node, topic) if by_id else topic.name
            if name is None:
                code = KafkaCode.UNKNOWN_TOPIC_ID
                unknown.append(_topic("", topic.topic_id, _failed(topic.partition_indexes, code)))
            elif (denied := permissions.denial(request, _TOPIC, name)) is not None:
                failed = _failed(topic.partition_indexes, denied.code)
                unknown.append(_topic(topic.name, topic.topic_id, failed))
            else:
                topics.append((name, topic.partition_indexes))

    def show(found: list[FetchedTopic]) -> OffsetFetchGroupResponse:
        rows = [
            _found(node, topic)
            for topic in found
            if topics is not None or permissions.allows(request, _TOPIC, topic.name, LISTING)
        ]
        if by_id:
            # Offsets of a deleted topic have no topic id.
            rows = [row for row in rows if row.topic_id != NO_TOPIC_ID]
        return _group(group.group_id, KafkaCode.NONE, rows + unknown)

    def refuse(error: KafkaError) -> OffsetFetchGroupResponse:
        rows = [
            _topic(
                topic.name,
                topic.topic_id,
                _failed(topic.partition_indexes, error.code),
            )
            for topic in group.topics or ()
        ]
        has_group_error = request.version >= TOP_LEVEL_ERROR_FROM
        return _group(group.group_id, error.code, [] if has_group_error else rows)

    denied = permissions.denial(request, ResourceType.GROUP, group.group_id)
    if denied is not None:
        return refuse(denied.error())
    return groups.ask(
        group.group_id,
        lambda state, env: offsets.fetch(
            state,
            group.group_id,
            topics=topics,
            member_id=group.member_id,
            member_epoch=group.member_epoch,
            require_stable=require_stable,
        ),
        show=show,
        refuse=refuse,
    )


def _name(node: NodeState, topic: OffsetFetchTopic) -> str | None:
    found = node.image.topics_by_id.get(topic.topic_id)
    return found.name if found is not None else None


def _found(node: NodeState, topic: FetchedTopic) -> OffsetFetchTopicResponse:
    known = node.image.topics.get(topic.name)
    partitions = [_partition(index, value) for index, value in topic.partitions]
    return _topic(topic.name, known.topic_id if known else NO_TOPIC_ID, partitions)


def _partition(index: int, value: CommittedOffset | KafkaCode | None) -> OffsetFetchPartition:
    if isinstance(value, CommittedOffset):
        return OffsetFetchPartition(
            partition_index=index,
            committed_offset=value.offset,
            committed_leader_epoch=value.leader_epoch,
            metadata=value.metadata,
            error_code=KafkaCode.NONE,
        )
    return OffsetFetchPartition(
        partition_index=index,
        committed_offset=-1,
        committed_leader_epoch=-1,
        metadata="",
        error_code=value if value is not None else KafkaCode.NONE,
    )


def _failed(partitions: Sequence[int], code: KafkaCode) -> list[OffsetFetchPartition]:
    return [_partition(index, code) for index in partitions]


def _topic(
    name: str, topic_id: TopicId, partitions: list[OffsetFetchPartition]
) -> OffsetFetchTopicResponse:
    return OffsetFetchTopicResponse(name=name, topic_id=topic_id, partitions=partitions)


def _group(
    group_id: str, code: KafkaCode, topics: list[OffsetFetchTopicResponse]
) -> OffsetFetchGroupResponse:
    return OffsetFetchGroupResponse(group_id=group_id, error_code=code, topics=topics)
