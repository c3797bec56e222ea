"""CreatePartitions (37), versions 0-3."""

from millstream.broker.node.topics import Topics
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import Turns, distinct
from millstream.errors import KafkaCode, KafkaError
from millstream.security.acl import ResourceType
from millstream.wire.apis.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsResult,
)

HOLDS_NEXT_REQUEST = True


async def handle(
    topics: Topics,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    body: CreatePartitionsRequest,
) -> CreatePartitionsResponse:
    wanted, twice = distinct(body.topics, key=lambda topic: topic.name)
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
            await topics.add_partitions(
                topic.name, topic.count, assignments, validate_only=body.validate_only
            )
        except KafkaError as error:
            answer.error_code, answer.error_message = error.code, error.message
        results.append(answer)
    return CreatePartitionsResponse(results=results)
