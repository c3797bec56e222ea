"""OffsetFetch (9), versions 1-10: of several groups from 8 on, topics by id from 10 on."""

from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final

from millstream.broker.coordination.coordinators import gather
from millstream.broker.requests.request import Request
from millstream.coordinators.codecs.changes import CommittedOffset
from millstream.coordinators.groups import offsets
from millstream.coordinators.groups.offsets import FetchedTopic
from millstream.errors import KafkaCode, KafkaError
from millstream.model import NO_TOPIC_ID
from millstream.wire.messages import Struct

if TYPE_CHECKING:
    from millstream.broker.broker import Broker

BATCHED_FROM: Final = 8
BY_ID_FROM: Final = 10
# Before version 2 an error had no place of its own.
TOP_LEVEL_ERROR_FROM: Final = 2


def handle(
    broker: "Broker", request: Request, body: Struct
) -> Struct | Coroutine[Any, Any, Struct]:
    if request.version >= BATCHED_FROM:
        groups = [_fetch(broker, request, group, body.require_stable) for group in body.groups]
        return gather(groups, lambda answers: Struct(groups=answers))
    body.member_id, body.member_epoch = None, -1
    answer = _fetch(broker, request, body, body.require_stable)
    return gather([answer], lambda answers: answers[0])


def _fetch(
    broker: "Broker", request: Request, group: Struct, require_stable: bool
) -> Struct | Coroutine[Any, Any, Struct]:
    by_id = request.version >= BY_ID_FROM
    unknown: list[Struct] = []
    topics: list[tuple[str, Sequence[int]]] | None = None
    if group.topics is not None:
        topics = []
        for topic in group.topics:
            name = _name(broker, topic) if by_id else topic.name
            if name is None:
                code = KafkaCode.UNKNOWN_TOPIC_ID
                unknown.append(_topic("", topic.topic_id, _failed(topic.partition_indexes, code)))
            else:
                topics.append((name, topic.partition_indexes))

    def show(found: list[FetchedTopic]) -> Struct:
        rows = [_found(broker, topic) for topic in found]
        if by_id:
            # Offsets of a topic that is gone cannot be named by id.
            rows = [row for row in rows if row.topic_id != NO_TOPIC_ID]
        return _group(group.group_id, KafkaCode.NONE, rows + unknown)

    def refuse(error: KafkaError) -> Struct:
        rows = [
            _topic(
                topic.__dict__.get("name", ""),
                topic.topic_id if by_id else NO_TOPIC_ID,
                _failed(topic.partition_indexes, error.code),
            )
            for topic in group.topics or ()
        ]
        is_told_apart = request.version >= TOP_LEVEL_ERROR_FROM
        return _group(group.group_id, error.code, [] if is_told_apart else rows)

    return broker.coordinators.ask(
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


def _name(broker: "Broker", topic: Struct) -> str | None:
    found = broker.image.topics_by_id.get(topic.topic_id)
    return found.name if found is not None else None


def _found(broker: "Broker", topic: FetchedTopic) -> Struct:
    known = broker.image.topics.get(topic.name)
    partitions = [_partition(index, value) for index, value in topic.partitions]
    return _topic(topic.name, known.topic_id if known else NO_TOPIC_ID, partitions)


def _partition(index: int, value: CommittedOffset | KafkaCode | None) -> Struct:
    if isinstance(value, CommittedOffset):
        return Struct(
            partition_index=index,
            committed_offset=value.offset,
            committed_leader_epoch=value.leader_epoch,
            metadata=value.metadata,
            error_code=KafkaCode.NONE,
        )
    return Struct(
        partition_index=index,
        committed_offset=-1,
        committed_leader_epoch=-1,
        metadata="",
        error_code=value if value is not None else KafkaCode.NONE,
    )


def _failed(partitions: Sequence[int], code: KafkaCode) -> list[Struct]:
    return [_partition(index, code) for index in partitions]


def _topic(name: str, topic_id: object, partitions: list[Struct]) -> Struct:
    return Struct(name=name, topic_id=topic_id, partitions=partitions)


def _group(group_id: str, code: KafkaCode, topics: list[Struct]) -> Struct:
    return Struct(group_id=group_id, error_code=code, topics=topics)
