"""OffsetForLeaderEpoch (23), versions 2-4: the end offset of an epoch. It shows a reader
whether records that it read were removed."""

from collections.abc import Coroutine, Sequence
from typing import Any

from millstream.broker.node.state import NodeState
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import Turns, by_topic, once
from millstream.errors import KafkaCode, KafkaError
from millstream.security.acl import ResourceType
from millstream.security.operations import REPLICA
from millstream.wire.apis.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResponse,
)


def handle(
    node: NodeState,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    body: OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse | Coroutine[Any, Any, OffsetForLeaderEpochResponse]:
    return turns.prepare(
        request,
        lambda each: once(
            each(
                (topic.topic, partition) for topic in body.topics for partition in topic.partitions
            ),
            key=lambda named: (named[0], named[1].partition),
        ),
        lambda wanted: _answer_all(node, turns, permissions, request, wanted),
    )


def _answer_all(
    node: NodeState,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    wanted: Sequence[tuple[str, OffsetForLeaderPartition]],
) -> OffsetForLeaderEpochResponse | Coroutine[Any, Any, OffsetForLeaderEpochResponse]:
    is_replica = permissions.allows_cluster(request, REPLICA)

    def answer(named: tuple[str, OffsetForLeaderPartition]) -> EpochEndOffset:
        topic, partition = named
        denied = None if is_replica else permissions.denial(request, ResourceType.TOPIC, topic)
        if denied is not None:
            return _answer(partition.partition, denied.code)
        return _one(node, topic, partition)

    def combine(
        partitions: list[EpochEndOffset],
    ) -> OffsetForLeaderEpochResponse | Coroutine[Any, Any, OffsetForLeaderEpochResponse]:
        named = zip((topic for topic, _ in wanted), partitions, strict=True)
        return turns.prepare(
            request,
            lambda each: [
                OffsetForLeaderTopicResponse(topic=topic, partitions=found)
                for topic, found in each(by_topic(each(named)).items())
            ],
            lambda topics: OffsetForLeaderEpochResponse(topics=topics),
        )

    return turns.answer_each(request, wanted, answer, combine)


def _answer(index: int, code: KafkaCode) -> EpochEndOffset:
    return EpochEndOffset(error_code=code, partition=index, leader_epoch=-1, end_offset=-1)


def _one(node: NodeState, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    answer = _answer(wanted.partition, KafkaCode.NONE)
    try:
        partition = node.partitions.get(topic, wanted.partition)
        partition.require_online()
        partition.check_leader_epoch(wanted.current_leader_epoch)
        if wanted.leader_epoch == partition.leader_epoch:
            answer.leader_epoch = partition.leader_epoch
            answer.end_offset = partition.log.next_offset
        else:
            answer.leader_epoch, answer.end_offset = partition.log.epochs.end_offset_for(
                wanted.leader_epoch
            )
    except KafkaError as error:
        answer.error_code = error.code
    return answer
