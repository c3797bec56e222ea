"""AlterShareGroupOffsets (91), version 0: a group without members starts elsewhere."""

from collections.abc import Collection, Mapping
from uuid import UUID

from millstream.broker.coordination.share_state import for_each
from millstream.broker.coordination.sharing import Sharing
from millstream.broker.coordination.transactions import wait_for
from millstream.broker.handlers.share_group_heartbeat import note_initialized
from millstream.broker.node.state import NodeState
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.coordinators.codecs.changes import SharedTopic
from millstream.coordinators.groups import requests
from millstream.coordinators.share import admin
from millstream.errors import KafkaCode, KafkaError
from millstream.model import NO_TOPIC_ID
from millstream.security.acl import ResourceType
from millstream.wire.apis.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    ShareOffsetsAlteredPartitionResponse,
    ShareOffsetsAlteredTopicResponse,
)

# By topic and partition: why it was refused.
Errors = dict[tuple[str, int], KafkaError]


async def handle(
    sharing: Sharing,
    node: NodeState,
    permissions: Permissions,
    request: Request,
    body: AlterShareGroupOffsetsRequest,
) -> AlterShareGroupOffsetsResponse:
    errors: Errors = {}
    wanted: dict[str, dict[int, int]] = {}
    try:
        permissions.require(request, ResourceType.GROUP, body.group_id)
        for topic in body.topics:
            denied = permissions.denial(request, ResourceType.TOPIC, topic.topic_name)
            for row in topic.partitions:
                if denied is not None:
                    errors[topic.topic_name, row.partition_index] = denied.error()
                else:
                    starts = wanted.setdefault(topic.topic_name, {})
                    starts[row.partition_index] = row.start_offset
        if wanted:
            errors.update(await _alter(sharing, node, body.group_id, wanted))
    except KafkaError as error:
        return AlterShareGroupOffsetsResponse(
            error_code=error.code, error_message=error.message, responses=[]
        )
    return _response(node, body, errors)


async def _alter(
    sharing: Sharing, node: NodeState, group_id: str, wanted: Mapping[str, Mapping[int, int]]
) -> Errors:
    work = await wait_for(
        sharing.groups.submit(
            group_id,
            lambda state, env: admin.begin_alter(
                requests.share_group_or_new(state, group_id), wanted, env
            ),
        )
    )
    failed = await for_each(
        group_id,
        list(work.starts),
        lambda key: sharing.state.initialize(
            key,
            state_epoch=work.state_epoch,
            start_offset=work.starts[key.topic_id, key.partition],
        ),
    )
    # Leaders here read the state again; those elsewhere are fenced when they next store theirs.
    sharing.partitions.forget_group(group_id)
    for is_done in (True, False):
        topics = _part(work.topics, failed, is_done=is_done)
        if topics:
            await note_initialized(sharing, group_id, topics, is_done=is_done)
    unknown = KafkaError(KafkaCode.UNKNOWN_TOPIC_OR_PARTITION)
    errors: Errors = dict.fromkeys(work.unknown, unknown)
    for (topic_id, number), error in failed.items():
        errors[work.topics[topic_id].name, number] = error.kept()
    return errors


def _part(
    topics: Mapping[UUID, SharedTopic], failed: Collection[tuple[UUID, int]], *, is_done: bool
) -> dict[UUID, SharedTopic]:
    """The partitions that were begun, or those that were not."""
    found = {}
    for topic_id, topic in topics.items():
        numbers = [n for n in topic.partitions if ((topic_id, n) not in failed) is is_done]
        if numbers:
            found[topic_id] = SharedTopic(topic.name, tuple(numbers))
    return found


def _response(
    node: NodeState, body: AlterShareGroupOffsetsRequest, errors: Errors
) -> AlterShareGroupOffsetsResponse:
    topics = []
    for topic in body.topics:
        state = node.image.topics.get(topic.topic_name)
        rows = []
        for row in topic.partitions:
            error = errors.get((topic.topic_name, row.partition_index))
            rows.append(
                ShareOffsetsAlteredPartitionResponse(
                    partition_index=row.partition_index,
                    error_code=KafkaCode.NONE if error is None else error.code,
                    error_message=None if error is None else error.message,
                )
            )
        topics.append(
            ShareOffsetsAlteredTopicResponse(
                topic_name=topic.topic_name,
                topic_id=NO_TOPIC_ID if state is None else state.topic_id,
                partitions=rows,
            )
        )
    return AlterShareGroupOffsetsResponse(
        error_code=KafkaCode.NONE, error_message=None, responses=topics
    )
