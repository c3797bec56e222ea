"""DeleteRecords (21), versions 0-2: moves the log start offset.

The response comes when every in-sync replica has moved its own log start, so that a new
leader does not bring deleted records back. Refused for topics that are only compacted
(POLICY_VIOLATION), and above the high watermark (OFFSET_OUT_OF_RANGE).
"""

import asyncio
from typing import Final

from millstream.broker.node.state import NodeState
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import Turns, by_topic
from millstream.errors import KafkaCode, KafkaError, NoSpace
from millstream.model import INTERNAL_TOPICS
from millstream.replication.partition import Partition
from millstream.security.acl import ResourceType
from millstream.wire.apis.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResponse,
)

HOLDS_NEXT_REQUEST = True

TO_HIGH_WATERMARK: Final = -1
# A large request waits no longer for followers, whatever its client allows: few of them are under
# way at a time, and those of other clients wait until this one is answered.
_LARGE_WAIT_SECONDS_MAX: Final = 5.0

# The responses for partitions that wait for their followers, with the waits.
Waits = list[tuple[DeleteRecordsPartitionResponse, "asyncio.Future[None]"]]


async def handle(
    node: NodeState,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    body: DeleteRecordsRequest,
) -> DeleteRecordsResponse:
    # Before any turn: a small request may take several on a busy node, and delays no others.
    is_large = request.is_long
    # Of a partition that is named twice the last offset counts, as in Kafka.
    wanted = await turns.prepared(
        request,
        lambda each: {
            (topic.name, partition.partition_index): partition
            for topic in each(body.topics)
            for partition in each(topic.partitions)
        },
    )
    waits: Waits = []
    deletions = [
        _delete(node, permissions, request, topic, partition, waits)
        async for (topic, _), partition in turns.each(request, wanted.items())
    ]
    ends_at = asyncio.get_running_loop().time() + wait_seconds(body, is_large=is_large)
    is_kept = await _keep(node)
    await _wait_for_followers(waits, ends_at)
    if not is_kept:
        async for one in turns.each(request, deletions):
            _take_back(one, KafkaCode.KAFKA_STORAGE_ERROR)
    answers = zip((topic for topic, _ in wanted), deletions, strict=True)
    topics = await turns.prepared(
        request,
        lambda each: [
            DeleteRecordsTopicResponse(name=topic, partitions=partitions)
            for topic, partitions in each(by_topic(each(answers)).items())
        ],
    )
    if request.is_long:
        turns.free_soon(request, deletions)
    return DeleteRecordsResponse(topics=topics)


async def _keep(node: NodeState) -> bool:
    """Deleted records must not come back after a crash. If this fails, nothing is promised."""
    try:
        await node.disk.checkpoint()
    except NoSpace:
        return False
    return node.disk.failure is None


def wait_seconds(body: DeleteRecordsRequest, *, is_large: bool) -> float:
    """How long the response waits for followers."""
    wanted = max(body.timeout_ms, 0) / 1000
    return min(wanted, _LARGE_WAIT_SECONDS_MAX) if is_large else wanted


async def _wait_for_followers(waits: Waits, ends_at: float) -> None:
    if not waits:
        return
    left_seconds = max(ends_at - asyncio.get_running_loop().time(), 0)
    await asyncio.wait([wait for _, wait in waits], timeout=left_seconds)
    for partition, wait in waits:
        _take_back(partition, _code_of(wait))


def _take_back(partition: DeleteRecordsPartitionResponse, code: KafkaCode) -> None:
    if partition.error_code == KafkaCode.NONE and code != KafkaCode.NONE:
        partition.error_code, partition.low_watermark = code, -1


def _code_of(wait: "asyncio.Future[None]") -> KafkaCode:
    if not wait.done():
        # The deletion continues anyway; the client may ask again.
        wait.cancel()
        return KafkaCode.REQUEST_TIMED_OUT
    error = wait.exception()
    if error is None:
        return KafkaCode.NONE
    assert isinstance(error, KafkaError), error
    return error.code


def _delete(
    node: NodeState,
    permissions: Permissions,
    request: Request,
    topic: str,
    wanted: DeleteRecordsPartition,
    waits: Waits,
) -> DeleteRecordsPartitionResponse:
    answer = DeleteRecordsPartitionResponse(
        partition_index=wanted.partition_index, low_watermark=-1, error_code=KafkaCode.NONE
    )
    try:
        permissions.require(request, ResourceType.TOPIC, topic)
        if topic in INTERNAL_TOPICS:
            raise KafkaError(KafkaCode.INVALID_TOPIC_EXCEPTION)
        partition = node.partitions.get(topic, wanted.partition_index)
        answer.low_watermark = _move_start(partition, wanted.offset)
        wait = partition.wait_deleted(answer.low_watermark)
        if wait is not None:
            waits.append((answer, wait))
    except KafkaError as error:
        answer.error_code = error.code
    return answer


def _move_start(partition: Partition, offset: int) -> int:
    partition.require_online()
    if not partition.log.config.is_deleted:
        raise KafkaError(KafkaCode.POLICY_VIOLATION, "cleanup.policy does not delete")
    if offset == TO_HIGH_WATERMARK:
        offset = partition.high_watermark
    if not 0 <= offset <= partition.high_watermark:
        raise KafkaError(KafkaCode.OFFSET_OUT_OF_RANGE)
    return partition.log.delete_records_before(offset)
