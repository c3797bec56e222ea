"""CreatePartitions (37), versions 0-3."""

from typing import Final

from millstream.broker.node.state import NodeState
from millstream.broker.node.topics import Topics
from millstream.broker.requests.mutations import mutations, mute
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import Turns, distinct
from millstream.broker.security.quota_use import ClientQuotas
from millstream.errors import KafkaCode, KafkaError
from millstream.security.acl import ResourceType
from millstream.wire.apis.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsResult,
)

HOLDS_NEXT_REQUEST = True
# Older clients do not know the error of a quota.
_STRICT_FROM: Final = 3


async def handle(
    topics: Topics,
    turns: Turns,
    permissions: Permissions,
    node: NodeState,
    quotas: ClientQuotas,
    request: Request,
    body: CreatePartitionsRequest,
) -> CreatePartitionsResponse:
    wanted, twice = await turns.prepared(
        request, lambda each: distinct(each(body.topics), key=lambda topic: topic.name)
    )
    changes = mutations(quotas, request, strict_from=_STRICT_FROM)
    results = []
    async for topic in turns.each(request, wanted):
        answer = CreatePartitionsResult(
            name=topic.name, error_code=KafkaCode.NONE, error_message=None
        )
        try:
            if topic.name in twice:
                raise KafkaError(KafkaCode.INVALID_REQUEST, "topic named twice in one request")
            permissions.require(request, ResourceType.TOPIC, topic.name)
            assignments = (
                None
                if topic.assignments is None
                else [list(assignment.broker_ids) for assignment in topic.assignments]
            )
            present = node.image.topics.get(topic.name)
            if present is not None and not body.validate_only:
                changes.take(max(topic.count - len(present.partitions), 0))
            await topics.add_partitions(
                topic.name, topic.count, assignments, validate_only=body.validate_only
            )
        except KafkaError as error:
            answer.error_code, answer.error_message = error.code, error.message
        results.append(answer)
    return CreatePartitionsResponse(throttle_time_ms=mute(request, changes), results=results)
