"""DeleteTopics (20), versions 1-6: by id from version 6."""

from typing import Final

from millstream.broker.node.state import NodeState
from millstream.broker.node.topics import Topics
from millstream.broker.requests.mutations import mutations, mute
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import Turns, distinct
from millstream.broker.security.quota_use import ClientQuotas, Mutations
from millstream.errors import KafkaCode, KafkaError
from millstream.model import NO_TOPIC_ID, TopicId
from millstream.security.acl import ResourceType
from millstream.security.operations import SHOW
from millstream.wire.apis.delete_topics import (
    DeletableTopic,
    DeletedTopic,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

HOLDS_NEXT_REQUEST = True
# Older clients do not know the error of a quota.
_STRICT_FROM: Final = 5


async def handle(
    node: NodeState,
    topics: Topics,
    turns: Turns,
    permissions: Permissions,
    quotas: ClientQuotas,
    request: Request,
    body: DeleteTopicsRequest,
) -> DeleteTopicsResponse:
    if request.version < 6:
        named = [DeletableTopic(name=name, topic_id=NO_TOPIC_ID) for name in body.topic_names]
    else:
        named = body.topics
    wanted, twice = await turns.prepared(request, lambda each: distinct(each(named), _key))
    changes = mutations(quotas, request, strict_from=_STRICT_FROM)
    responses = [
        _named_twice(topic)
        if _key(topic) in twice
        else await _delete(node, topics, permissions, changes, request, topic)
        async for topic in turns.each(request, wanted)
    ]
    return DeleteTopicsResponse(throttle_time_ms=mute(request, changes), responses=responses)


def _key(topic: DeletableTopic) -> tuple[str | None, TopicId]:
    return topic.name, topic.topic_id


def _named_twice(topic: DeletableTopic) -> DeletedTopic:
    return DeletedTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        error_code=KafkaCode.INVALID_REQUEST,
        error_message="topic named twice in one request",
    )


async def _delete(
    node: NodeState,
    topics: Topics,
    permissions: Permissions,
    changes: Mutations,
    request: Request,
    wanted: DeletableTopic,
) -> DeletedTopic:
    answer = DeletedTopic(
        name=wanted.name, topic_id=wanted.topic_id, error_code=KafkaCode.NONE, error_message=None
    )
    try:
        if not node.config.boolean("delete.topic.enable"):
            # Clients before version 3 do not know the better code.
            code = (
                KafkaCode.TOPIC_DELETION_DISABLED
                if request.version >= 3
                else (KafkaCode.INVALID_REQUEST)
            )
            raise KafkaError(code, "delete.topic.enable=false")
        name = wanted.name
        if wanted.topic_id != NO_TOPIC_ID:
            if name is not None:
                raise KafkaError(KafkaCode.INVALID_REQUEST, "give a name or an id, not both")
            name = node.partitions.name_of(wanted.topic_id)
            if permissions.allows(request, ResourceType.TOPIC, name, SHOW):
                answer.name = name
        permissions.require(request, ResourceType.TOPIC, name or "")
        state = node.image.topics.get(name or "")
        if state is not None:
            changes.take(len(state.partitions))
        await topics.delete(name or "")
        answer.name = name
        if state is not None:
            answer.topic_id = state.topic_id
    except KafkaError as error:
        answer.error_code, answer.error_message = error.code, error.message
    return answer
