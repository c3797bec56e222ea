"""PeekShareGroup (20005, ours), version 0: what a share group has in flight on this node.

Nothing is acquired, and nothing is loaded: of a partition that nobody fetches from, only
the end and the time of the first record are new to the client.
"""

from itertools import islice
from typing import Final

from millstream.broker.coordination.hosting import Coordinators
from millstream.broker.node.state import NodeState
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import Turns, once
from millstream.coordinators.codecs.share_state import ShareKey
from millstream.coordinators.share.partition import SharePartition
from millstream.coordinators.share.peeking import in_flight_ranges
from millstream.errors import KafkaCode, KafkaError
from millstream.records.batch import HEADER_BYTES, BatchView
from millstream.replication.partition import Partition
from millstream.security.acl import ResourceType
from millstream.wire.apis.peek_share_group import (
    PeekedPartition,
    PeekedPartitionStart,
    PeekedRange,
    PeekShareGroupRequest,
    PeekShareGroupResponse,
)

_NO_TIME: Final = -1
# Of one partition: more than a person reads.
_RANGES_MAX: Final = 1_000


async def handle(
    node: NodeState,
    coordination: Coordinators,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    body: PeekShareGroupRequest,
) -> PeekShareGroupResponse:
    answer = PeekShareGroupResponse(
        error_code=KafkaCode.NONE,
        error_message=None,
        dead_letters=0,
        dead_letter_problem=None,
        partitions=[],
    )
    try:
        permissions.require(request, ResourceType.GROUP, body.group_id)
        async for wanted in turns.each_in_line(request, body.topics):
            permissions.require(request, ResourceType.TOPIC, wanted.topic)
    except KafkaError as error:
        answer.error_code, answer.error_message = error.code, error.message
        return answer
    if coordination.has_sharing:
        letters = coordination.sharing.dead_letters
        answer.dead_letters = letters.written.get(body.group_id, 0)
        answer.dead_letter_problem = letters.problems.get(body.group_id)
    rows = await turns.prepared(
        request,
        lambda each: once(
            each((one.topic, row) for one in body.topics for row in one.partitions),
            key=lambda named: (named[0], named[1].partition),
        ),
    )
    async for topic, row in turns.each_in_line(request, rows):
        partition = node.partitions.find(topic, row.partition)
        if partition is None or not partition.is_leader or partition.offline_reason:
            continue
        share = _share_of(coordination, body.group_id, partition)
        answer.partitions.append(_peeked(node, partition, row, share))
    return answer


def _share_of(
    coordination: Coordinators, group_id: str, partition: Partition
) -> SharePartition | None:
    if not coordination.has_sharing:
        return None
    number = partition.topic_partition.partition
    led = coordination.sharing.partitions.find(ShareKey(group_id, partition.topic_id, number))
    return None if led is None else led.share


def _peeked(
    node: NodeState, partition: Partition, row: PeekedPartitionStart, share: SharePartition | None
) -> PeekedPartition:
    end = partition.high_watermark
    start = max(row.start_offset, partition.log.log_start_offset)
    now_ms = node.now_ms()
    if share is not None:
        start = share.start_offset
    return PeekedPartition(
        topic=partition.topic_partition.topic,
        partition=partition.topic_partition.partition,
        is_fetched=share is not None,
        start_offset=start,
        next_offset=start if share is None else share.next_offset,
        end_offset=end,
        oldest_ms=_time_at(partition, start),
        finished=0 if share is None else share.finished_count,
        ranges=[
            PeekedRange(
                first_offset=one.first,
                last_offset=one.last,
                state=one.state,
                delivery_count=one.delivery_count,
                member_id=one.member_id or None,
                left_ms=max(one.until_ms - now_ms, 0) if one.until_ms else 0,
            )
            for one in islice(() if share is None else in_flight_ranges(share), _RANGES_MAX)
        ],
    )


def _time_at(partition: Partition, offset: int) -> int:
    """Of the batch that holds the record."""
    try:
        found = partition.read(offset, max_bytes=0, at_least_one=True)
    except KafkaError:
        return _NO_TIME
    if found is None:
        return _NO_TIME
    return BatchView(memoryview(found.file.read_at(found.position, HEADER_BYTES))).base_timestamp_ms
