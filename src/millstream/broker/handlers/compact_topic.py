"""CompactTopic (20002, ours), version 0: compact a topic now, or tell how that is going."""

from typing import TYPE_CHECKING

from millstream.broker.connection import Pieces
from millstream.errors import KafkaCode, KafkaError
from millstream.replication.partition import Partition
from millstream.wire.cursor import Cursor
from millstream.wire.vendor import (
    CompactedPartition,
    CompactTopicRequest,
    CompactTopicResponse,
    read_compact_topic,
    write_compact_topic_response,
)

if TYPE_CHECKING:
    from millstream.broker.broker import Broker


def handle(broker: "Broker", correlation_id: int, cursor: Cursor) -> Pieces:
    request = read_compact_topic(cursor)
    try:
        answer = _answer(broker, request)
    except KafkaError as error:
        answer = CompactTopicResponse(error.code, error.message)
    return [write_compact_topic_response(answer, correlation_id=correlation_id)]


def _answer(broker: "Broker", request: CompactTopicRequest) -> CompactTopicResponse:
    partitions = broker.partitions.of_topic(request.topic)
    if not partitions:
        raise KafkaError(KafkaCode.UNKNOWN_TOPIC_OR_PARTITION)
    for partition in partitions.values():
        if not partition.log.config.is_compacted:
            raise KafkaError(
                KafkaCode.POLICY_VIOLATION, f"{request.topic} has no compact in its cleanup.policy"
            )
    if request.is_started:
        for partition in partitions.values():
            partition.require_online()
            broker.cleaner.ask(partition)
    return CompactTopicResponse(
        KafkaCode.NONE,
        None,
        [_told(broker, index, partition) for index, partition in sorted(partitions.items())],
    )


def _told(broker: "Broker", index: int, partition: Partition) -> CompactedPartition:
    progress = broker.cleaner.progress(partition)
    return CompactedPartition(
        partition=index,
        state=progress.state,
        problem=progress.problem,
        dirty_ratio=broker.cleaner.dirty_ratio(partition),
        bytes_before=progress.bytes_before,
        bytes_after=progress.bytes_after,
        records_before=progress.records_before,
        records_after=progress.records_after,
        keys=progress.keys,
        moved_bytes=progress.moved_bytes,
        elapsed_ms=progress.elapsed_ms,
    )
