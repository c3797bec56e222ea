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

# The response for a partition, and the wait for its followers, if there is one.
Deletion = tuple[DeleteRecordsPartitionResponse, "asyncio.Future[None] | None"]


async def handle(
    node: NodeState,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    body: DeleteRecordsRequest,
) -> DeleteRecordsResponse:
    # Of a partition that is named twice the last offset counts, as in Kafka.
    wanted = {
        (topic.name, partition.partition_index): partition
        for topic in body.topics
        for partition in topic.partitions
    }
    deletions = [
        _delete(node, permissions, request, topic, partition)
        async for (topic, _), partition in turns.each(request, wanted.items())
    ]
    await _wait_for_followers(node, deletions, body.timeout_ms)
    answers = zip((topic for topic, _ in wanted), (each for each, _ in deletions), strict=True)
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResponse(name=topic, partitions=partitions)
            for topic, partitions in by_topic(answers).items()
        ]
    )


async def _wait_for_followers(node: NodeState, deletions: list[Deletion], timeout_ms: int) -> None:
    waits = [wait for _, wait in deletions if wait is not None]
    deadline = asyncio.get_running_loop().time() + max(timeout_ms, 0) / 1000
    # Deleted records must not come back after a crash.
    try:
        await node.disk.checkpoint()
        is_kept = node.disk.failure is None
    except NoSpace:
        is_kept = False
    if waits:
        left_seconds = max(deadline - asyncio.get_running_loop().time(), 0)
        await asyncio.wait(waits, timeout=left_seconds)
    for partition, wait in deletions:
        code = _code_of(wait)
        if not is_kept and code == KafkaCode.NONE:
            # The checkpoint was not written, so nothing is promised.
            code = KafkaCode.KAFKA_STORAGE_ERROR
        if partition.error_code == KafkaCode.NONE and code != KafkaCode.NONE:
            partition.error_code, partition.low_watermark = code, -1


def _code_of(wait: "asyncio.Future[None] | None") -> KafkaCode:
    if wait is None:
        return KafkaCode.NONE
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
) -> Deletion:
    answer = DeleteRecordsPartitionResponse(
        partition_index=wanted.partition_index, low_watermark=-1, error_code=KafkaCode.NONE
    )
    try:
        permissions.require(request, ResourceType.TOPIC, topic)
        if topic in INTERNAL_TOPICS:
            raise KafkaError(KafkaCode.INVALID_TOPIC_EXCEPTION)
        partition = node.partitions.get(topic, wanted.partition_index)
        answer.low_watermark = _move_start(partition, wanted.offset)
        return answer, partition.wait_deleted(answer.low_watermark)
    except KafkaError as error:
        answer.error_code = error.code
        return answer, None


def _move_start(partition: Partition, offset: int) -> int:
    partition.require_online()
    if not partition.log.config.is_deleted:
        raise KafkaError(KafkaCode.POLICY_VIOLATION, "cleanup.policy does not delete")
    if offset == TO_HIGH_WATERMARK:
        offset = partition.high_watermark
    if not 0 <= offset <= partition.high_watermark:
        raise KafkaError(KafkaCode.OFFSET_OUT_OF_RANGE)
    return partition.log.delete_records_before(offset)
