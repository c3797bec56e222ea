"""CreateTopics (19), versions 2-7."""

from typing import Final

from millstream.broker.node.state import NodeState
from millstream.broker.node.topics import Topics
from millstream.broker.requests import config_view
from millstream.broker.requests.mutations import mutations, mute
from millstream.broker.requests.pacing import Each
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import Turns
from millstream.broker.security.quota_use import ClientQuotas
from millstream.cluster.changes import NewTopic
from millstream.cluster.metadata import TopicResult
from millstream.errors import KafkaCode, KafkaError
from millstream.model import NO_TOPIC_ID
from millstream.security.acl import ResourceType
from millstream.security.operations import SHOW
from millstream.wire.apis.create_topics import (
    CreatableTopic,
    CreatedConfig,
    CreatedTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

HOLDS_NEXT_REQUEST = True
_NULL_FROM: Final = 5
# Older clients do not know the error of a quota.
_STRICT_FROM: Final = 6


async def handle(
    node: NodeState,
    topics: Topics,
    turns: Turns,
    permissions: Permissions,
    quotas: ClientQuotas,
    request: Request,
    body: CreateTopicsRequest,
) -> CreateTopicsResponse:
    wanted = await turns.prepared(
        request, lambda each: [_new_topic(each, topic) for topic in each(body.topics)]
    )
    refused = await _refused(turns, permissions, request, wanted)
    changes = mutations(quotas, request, strict_from=_STRICT_FROM)
    async for topic in turns.each(request, [] if body.validate_only else wanted):
        if topic.name not in refused:
            try:
                changes.take(_partitions(node, topic))
            except KafkaError as error:
                refused[topic.name] = TopicResult(topic.name, error=error.kept())
    allowed = wanted
    if refused:
        allowed = [
            topic async for topic in turns.each(request, wanted) if topic.name not in refused
        ]
    results = await topics.create(allowed, validate_only=body.validate_only) if allowed else []
    results += refused.values()
    answers = [
        _answer(node, permissions, request, result) async for result in turns.each(request, results)
    ]
    if request.is_long:
        turns.free_soon(request, wanted, results)
    return CreateTopicsResponse(throttle_time_ms=mute(request, changes), topics=answers)


def _partitions(node: NodeState, topic: NewTopic) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return topic.partitions if topic.partitions > 0 else node.config.int("num.partitions")


async def _refused(
    turns: Turns, permissions: Permissions, request: Request, wanted: list[NewTopic]
) -> dict[str, TopicResult]:
    if permissions.allows_cluster(request):
        return {}
    refused = {}
    async for topic in turns.each(request, wanted):
        denied = permissions.denial(request, ResourceType.TOPIC, topic.name)
        if denied is not None:
            error = KafkaError(denied.code, "Authorization failed.")
            refused[topic.name] = TopicResult(topic.name, error=error)
    return refused


def _new_topic(each: Each, topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments={a.partition_index: list(a.broker_ids) for a in each(topic.assignments)},
        configs={c.name: c.value for c in each(topic.configs)},
    )


def _answer(
    node: NodeState, permissions: Permissions, request: Request, result: TopicResult
) -> CreatedTopic:
    state = result.state
    if result.error is not None or state is None:
        error = result.error
        return CreatedTopic(
            name=result.name,
            topic_id=NO_TOPIC_ID,
            error_code=error.code if error else KafkaCode.UNKNOWN_SERVER_ERROR,
            error_message=error.message if error else None,
            num_partitions=-1,
            replication_factor=-1,
            configs=[],
        )
    hidden = permissions.denial(request, ResourceType.TOPIC, result.name, SHOW)
    if hidden is not None:
        return CreatedTopic(
            name=result.name,
            topic_id=state.topic_id,
            error_code=KafkaCode.NONE,
            error_message=None,
            topic_config_error_code=hidden.code,
            configs=None if request.version >= _NULL_FROM else [],
        )
    return CreatedTopic(
        name=result.name,
        topic_id=state.topic_id,
        error_code=KafkaCode.NONE,
        error_message=None,
        num_partitions=len(state.partitions),
        replication_factor=len(state.partitions[0].replicas),
        configs=[
            CreatedConfig(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.config_source,
                is_sensitive=entry.is_sensitive,
            )
            for entry in config_view.topic_entries(node, state, names=None)
        ],
    )
