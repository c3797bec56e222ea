"""ListOffsets (2), versions 1-11: the first and last offsets, and offsets by timestamp.

Special timestamps: -1 latest, -2 earliest, -3 the record with the largest timestamp,
-4 earliest on local disk (the same here), -5 latest in remote storage and -6 earliest
pending upload (there is none: answered with no offset, as Kafka does without tiering).
"""

from typing import Final

from millstream.broker.node.state import NodeState
from millstream.broker.requests.request import Request
from millstream.errors import KafkaCode, KafkaError
from millstream.model import NO_LEADER_EPOCH, NO_TIMESTAMP_MS
from millstream.replication.partition import Partition
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


def handle(node: NodeState, request: Request, body: ListOffsetsRequest) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _one(node, topic.name, wanted, body.isolation_level)
                    for wanted in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )


def _one(
    node: NodeState, topic: str, wanted: ListOffsetsPartition, isolation_level: int
) -> ListOffsetsPartitionResponse:
    answer = ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        error_code=KafkaCode.NONE,
        timestamp=NO_TIMESTAMP_MS,
        offset=NO_OFFSET,
        leader_epoch=NO_LEADER_EPOCH,
    )
    try:
        partition = node.partitions.get(topic, wanted.partition_index)
        partition.require_online()
        partition.check_leader_epoch(wanted.current_leader_epoch)
        _look_up(partition, wanted.timestamp, isolation_level, answer)
    except KafkaError as error:
        answer.error_code = error.code
    return answer


def _look_up(
    partition: Partition, timestamp: int, isolation_level: int, answer: ListOffsetsPartitionResponse
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
            partition.offset_of_max_timestamp()
            if timestamp == MAX_TIMESTAMP
            else partition.offset_for_timestamp(timestamp, upto_offset=end)
        )
        if found is not None:
            answer.offset = found.offset
            answer.timestamp = found.timestamp_ms
            answer.leader_epoch = found.leader_epoch
    else:
        # Newer versions may define other negative numbers.
        raise KafkaError(KafkaCode.UNSUPPORTED_VERSION, f"unknown timestamp {timestamp}")
