"""ListOffsets (2), versions 1-11: the first and last offsets, and offsets by timestamp.

Special timestamps: -1 latest, -2 earliest, -3 the record with the largest timestamp,
-4 earliest on local disk (the same here), -5 latest in remote storage and -6 earliest
pending upload (there is none: answered with no offset, as Kafka does without tiering).

No record at or after the timestamp: no offset (-1), no error. The same if the record with the
largest timestamp is deleted, or above what the client may read: the high watermark, or the last
stable offset with read_committed. No other record is looked for in its place.
"""

from collections.abc import Container, Coroutine, Iterator, Sequence
from typing import Any, Final

from millstream.broker.node.state import NodeState
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import Turns, by_topic, distinct, stop_if_abandoned
from millstream.errors import KafkaCode, KafkaError
from millstream.model import NO_LEADER_EPOCH, NO_TIMESTAMP_MS
from millstream.replication.partition import Partition
from millstream.security.acl import ResourceType
from millstream.storage.lookup import LargeBatch, Searched
from millstream.storage.values import TimestampOffset
from millstream.wire.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
NO_OFFSET: Final = -1
READ_COMMITTED: Final = 1


Wanted = tuple[str, ListOffsetsPartition]


def handle(
    node: NodeState,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    body: ListOffsetsRequest,
) -> ListOffsetsResponse | Coroutine[Any, Any, ListOffsetsResponse]:
    return turns.prepare(
        request,
        lambda each: distinct(each(_named(body)), _key),
        lambda found: _answer_all(node, turns, permissions, request, body, *found),
    )


def _named(body: ListOffsetsRequest) -> Iterator[Wanted]:
    return ((topic.name, partition) for topic in body.topics for partition in topic.partitions)


def _answer_all(
    node: NodeState,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    body: ListOffsetsRequest,
    wanted: Sequence[Wanted],
    twice: Container[tuple[str, int]],
) -> ListOffsetsResponse | Coroutine[Any, Any, ListOffsetsResponse]:
    def answer(
        one: Wanted,
    ) -> ListOffsetsPartitionResponse | Coroutine[Any, Any, ListOffsetsPartitionResponse]:
        if _key(one) in twice:
            return _answer(one[1].partition_index, KafkaCode.INVALID_REQUEST)
        denied = permissions.denial(request, ResourceType.TOPIC, one[0])
        if denied is not None:
            return _answer(one[1].partition_index, denied.code)
        try:
            return _one(node, one, body.isolation_level, {})
        except LargeBatch:
            return _search(node, turns, request, one, body.isolation_level)

    def combine(
        partitions: list[ListOffsetsPartitionResponse],
    ) -> ListOffsetsResponse | Coroutine[Any, Any, ListOffsetsResponse]:
        named = zip((topic for topic, _ in wanted), partitions, strict=True)
        return turns.prepare(
            request,
            lambda each: [
                ListOffsetsTopicResponse(name=topic, partitions=found)
                for topic, found in each(by_topic(each(named)).items())
            ],
            lambda topics: ListOffsetsResponse(topics=topics),
        )

    return turns.answer_each(request, wanted, answer, combine)


def _key(one: Wanted) -> tuple[str, int]:
    return one[0], one[1].partition_index


async def _search(
    node: NodeState, turns: Turns, request: Request, one: Wanted, isolation_level: int
) -> ListOffsetsPartitionResponse:
    """Look into batches that are too large for the loop."""
    searched: dict[int, TimestampOffset | None] = {}
    while True:
        stop_if_abandoned(request)
        try:
            return _one(node, one, isolation_level, searched)
        except LargeBatch as large:
            searched[large.base_offset] = await turns.in_thread(large.search)


def _one(
    node: NodeState, one: Wanted, isolation_level: int, searched: Searched
) -> ListOffsetsPartitionResponse:
    topic, wanted = one
    answer = _answer(wanted.partition_index, KafkaCode.NONE)
    try:
        partition = node.partitions.get(topic, wanted.partition_index)
        partition.require_online()
        partition.check_leader_epoch(wanted.current_leader_epoch)
        _look_up(partition, wanted.timestamp, isolation_level, searched, answer)
    except KafkaError as error:
        answer.error_code = error.code
    return answer


def _answer(index: int, code: KafkaCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=index,
        error_code=code,
        timestamp=NO_TIMESTAMP_MS,
        offset=NO_OFFSET,
        leader_epoch=NO_LEADER_EPOCH,
    )


def _look_up(
    partition: Partition,
    timestamp: int,
    isolation_level: int,
    searched: Searched,
    answer: ListOffsetsPartitionResponse,
) -> None:
    log = partition.log
    if timestamp not in (EARLIEST, EARLIEST_LOCAL) and not partition.is_settled:
        # An older leader may have exposed more than this one knows to be committed.
        raise KafkaError(KafkaCode.OFFSET_NOT_AVAILABLE)
    end = (
        partition.last_stable_offset
        if isolation_level == READ_COMMITTED
        else partition.high_watermark
    )
    if timestamp == LATEST:
        answer.offset, answer.leader_epoch = end, partition.leader_epoch
    elif timestamp in (EARLIEST, EARLIEST_LOCAL):
        answer.offset = log.log_start_offset
        answer.leader_epoch = log.epochs.epoch_at(log.log_start_offset)
    elif timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        pass
    elif timestamp == MAX_TIMESTAMP or timestamp >= 0:
        found = (
            partition.offset_of_max_timestamp(upto_offset=end, searched=searched)
            if timestamp == MAX_TIMESTAMP
            else partition.offset_for_timestamp(timestamp, upto_offset=end, searched=searched)
        )
        if found is not None:
            answer.offset = found.offset
            answer.timestamp = found.timestamp_ms
            answer.leader_epoch = found.leader_epoch
    else:
        # Newer versions may define other negative numbers.
        raise KafkaError(KafkaCode.UNSUPPORTED_VERSION, f"unknown timestamp {timestamp}")
