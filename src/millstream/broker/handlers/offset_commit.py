"""OffsetCommit (8), versions 2-10: topics by id from version 10 on."""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from millstream.broker.request import Request
from millstream.coordinators import offsets
from millstream.coordinators.offsets import CommitReply, CommitRequest, OffsetToCommit
from millstream.errors import KafkaCode, KafkaError
from millstream.model import NO_TOPIC_ID
from millstream.wire.messages import Struct

if TYPE_CHECKING:
    from millstream.broker.broker import Broker

BY_ID_FROM: Final = 10
KNOWS_MEMBER_EPOCHS_FROM: Final = 9


def handle(
    broker: "Broker", request: Request, body: Struct
) -> Struct | Coroutine[Any, Any, Struct]:
    commit = CommitRequest(
        group_id=body.group_id,
        member_id=body.member_id,
        instance_id=body.group_instance_id,
        generation=body.generation_id_or_member_epoch,
        topics=[_wanted(broker, topic, request.version) for topic in body.topics],
        retention_ms=body.retention_time_ms if request.version <= 4 else -1,
        knows_member_epochs=request.version >= KNOWS_MEMBER_EPOCHS_FROM,
    )

    def show(codes: CommitReply) -> Struct:
        return _answer(body, codes)

    def refuse(error: KafkaError) -> Struct:
        return _answer(body, [[error.code] * len(topic.partitions) for topic in body.topics])

    return broker.coordinators.ask(
        body.group_id,
        lambda state, env: offsets.commit(state, commit, env),
        show=show,
        refuse=refuse,
    )


def _wanted(broker: "Broker", topic: Struct, version: int) -> tuple[str, list[OffsetToCommit]]:
    unknown = KafkaCode.UNKNOWN_TOPIC_OR_PARTITION
    name = ""
    if version >= BY_ID_FROM:
        found = broker.image.topics_by_id.get(topic.topic_id)
        if found is None:
            unknown = KafkaCode.UNKNOWN_TOPIC_ID
        else:
            name = found.name
    else:
        name = topic.name
        found = broker.image.topics.get(name)
        topic.topic_id = NO_TOPIC_ID
    count = len(found.partitions) if found is not None else 0
    return name, [
        OffsetToCommit(
            one.partition_index,
            one.committed_offset,
            one.committed_leader_epoch,
            one.committed_metadata or "",
            KafkaCode.NONE if 0 <= one.partition_index < count else unknown,
        )
        for one in topic.partitions
    ]


def _answer(body: Struct, codes: CommitReply) -> Struct:
    return Struct(
        topics=[
            Struct(
                name=topic.__dict__.get("name", ""),
                topic_id=topic.topic_id,
                partitions=[
                    Struct(partition_index=one.partition_index, error_code=code)
                    for one, code in zip(topic.partitions, topic_codes, strict=True)
                ],
            )
            for topic, topic_codes in zip(body.topics, codes, strict=True)
        ]
    )
