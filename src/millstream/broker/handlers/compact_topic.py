"""CompactTopic (20002, ours), version 0: compact a topic now, or report the progress."""

from millstream.broker.node.state import NodeState
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.upkeep.cleaner import Cleaner
from millstream.errors import KafkaCode, KafkaError
from millstream.replication.partition import Partition
from millstream.security.acl import ResourceType
from millstream.wire.apis.compact_topic import (
    CompactedPartition,
    CompactTopicRequest,
    CompactTopicResponse,
)


def handle(
    node: NodeState,
    cleaner: Cleaner,
    permissions: Permissions,
    request: Request,
    body: CompactTopicRequest,
) -> CompactTopicResponse:
    try:
        permissions.require(request, ResourceType.TOPIC, body.topic)
        partitions = _partitions(node, cleaner, body)
    except KafkaError as error:
        return CompactTopicResponse(
            error_code=error.code, error_message=error.message, partitions=[]
        )
    return CompactTopicResponse(
        error_code=KafkaCode.NONE, error_message=None, partitions=partitions
    )


def _partitions(
    node: NodeState, cleaner: Cleaner, body: CompactTopicRequest
) -> list[CompactedPartition]:
    partitions = node.partitions.of_topic(body.topic)
    if not partitions:
        raise KafkaError(KafkaCode.UNKNOWN_TOPIC_OR_PARTITION)
    for partition in partitions.values():
        if not partition.log.config.is_compacted:
            raise KafkaError(
                KafkaCode.POLICY_VIOLATION, f"{body.topic} has no compact in its cleanup.policy"
            )
    if body.is_started:
        for partition in partitions.values():
            # Every replica compacts its own log, whether or not it leads.
            if partition.offline_reason is not None:
                raise KafkaError(KafkaCode.KAFKA_STORAGE_ERROR, partition.offline_reason)
            cleaner.ask(partition)
    return [_progress(cleaner, index, partition) for index, partition in sorted(partitions.items())]


def _progress(cleaner: Cleaner, index: int, partition: Partition) -> CompactedPartition:
    progress = cleaner.progress(partition)
    return CompactedPartition(
        partition=index,
        state=progress.state,
        problem=progress.problem,
        dirty_ratio=cleaner.dirty_ratio(partition),
        bytes_before=progress.bytes_before,
        bytes_after=progress.bytes_after,
        records_before=progress.records_before,
        records_after=progress.records_after,
        keys=progress.keys,
        moved_bytes=progress.moved_bytes,
        elapsed_ms=progress.elapsed_ms,
    )
