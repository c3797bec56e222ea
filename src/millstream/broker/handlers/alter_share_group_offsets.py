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
from millstream.broker.requests.turns import Turns
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
    turns: Turns,
    permissions: Permissions,
    request: Request,
    body: AlterShareGroupOffsetsRequest,
) -> AlterShareGroupOffsetsResponse:
    is_any_allowed = False
    unknown = KafkaError(KafkaCode.UNKNOWN_TOPIC_OR_PARTITION)
    errors: Errors = {}
    wanted: dict[str, dict[int, int]] = {}
    try:
        permissions.require(request, ResourceType.GROUP, body.group_id)
        async for topic in turns.each(request, body.topics):
            denied = permissions.denial(request, ResourceType.TOPIC, topic.topic_name)
            error = None if denied is None else denied.error()
            state = node.image.topics.get(topic.topic_name)
            count = 0 if state is None else len(state.partitions)
            async for row in turns.each(request, topic.partitions):
                number = row.partition_index
                is_any_allowed = is_any_allowed or error is None
                if error is not None or not 0 <= number < count:
                    errors[topic.topic_name, number] = error or unknown
                else:
                    wanted.setdefault(topic.topic_name, {})[number] = row.start_offset
        # Also if nothing is left of it: the group may have members.
        if is_any_allowed:
            sharing.groups.admit_group(body.group_id, request.connection.client)
            errors.update(await _alter(sharing, node, body.group_id, wanted))
    except KafkaError as error:
        return AlterShareGroupOffsetsResponse(
            error_code=error.code, error_message=error.message, responses=[]
        )
    answer = await _response(node, turns, request, body, errors)
    if request.is_long:
        turns.free_soon(request, errors)
    return answer


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


async def _response(
    node: NodeState,
    turns: Turns,
    request: Request,
    body: AlterShareGroupOffsetsRequest,
    errors: Errors,
) -> AlterShareGroupOffsetsResponse:
    topics = []
    async for topic in turns.each(request, body.topics):
        state = node.image.topics.get(topic.topic_name)
        rows = []
        async for row in turns.each(request, topic.partitions):
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
