"""CompactTopic (20002, ours), version 0: compact a topic now, or tell how that is going."""

from typing import TYPE_CHECKING

from millstream.broker.requests.request import Request
from millstream.errors import KafkaCode, KafkaError
from millstream.replication.partition import Partition
from millstream.wire.apis.compact_topic import (
    CompactedPartition,
    CompactTopicRequest,
    CompactTopicResponse,
)

if TYPE_CHECKING:
    from millstream.broker.broker import Broker


def handle(broker: "Broker", request: Request, body: CompactTopicRequest) -> CompactTopicResponse:
    try:
        partitions = _partitions(broker, body)
    except KafkaError as error:
        return CompactTopicResponse(
            error_code=error.code, error_message=error.message, partitions=[]
        )
    return CompactTopicResponse(
        error_code=KafkaCode.NONE, error_message=None, partitions=partitions
    )


def _partitions(broker: "Broker", body: CompactTopicRequest) -> list[CompactedPartition]:
    partitions = broker.partitions.of_topic(body.topic)
    if not partitions:
        raise KafkaError(KafkaCode.UNKNOWN_TOPIC_OR_PARTITION)
    for partition in partitions.values():
        if not partition.log.config.is_compacted:
            raise KafkaError(
                KafkaCode.POLICY_VIOLATION, f"{body.topic} has no compact in its cleanup.policy"
            )
    if body.is_started:
        for partition in partitions.values():
            # Every replica compacts its own log, whoever leads.
            if partition.offline_reason is not None:
                raise KafkaError(KafkaCode.KAFKA_STORAGE_ERROR, partition.offline_reason)
            broker.cleaner.ask(partition)
    return [_told(broker, index, partition) for index, partition in sorted(partitions.items())]


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
