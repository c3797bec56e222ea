"""Metadata (3), versions 0-13: brokers, topics, leaders; creates topics on first use."""

from collections.abc import Coroutine
from typing import Any

from millstream.broker.node.state import NodeState
from millstream.broker.node.topics import Topics
from millstream.broker.requests import topic_view
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import Turns, once
from millstream.errors import KafkaCode
from millstream.model import NO_TOPIC_ID, topic_name_problem
from millstream.wire.apis.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataTopic,
)

HOLDS_NEXT_REQUEST = True


def handle(
    node: NodeState, topics: Topics, turns: Turns, request: Request, body: MetadataRequest
) -> MetadataResponse | Coroutine[Any, Any, MetadataResponse]:
    if body.topics is None or (request.version == 0 and not body.topics):
        return turns.answer_each(
            request,
            list(node.image.topics.values()),
            lambda topic: topic_view.describe(node, topic),
            lambda shown: _answer(node, request, shown),
        )
    wanted = once(body.topics, key=lambda topic: (topic.name, topic.topic_id))
    may_create = body.allow_auto_topic_creation and node.config.boolean("auto.create.topics.enable")
    missing = _missing(node, wanted) if may_create else []
    if missing:
        return _create_and_answer(node, topics, turns, request, wanted, missing)
    return turns.answer_each(
        request,
        wanted,
        lambda topic: _one(node, topic),
        lambda shown: _answer(node, request, shown),
    )


def _missing(node: NodeState, wanted: list[MetadataRequestTopic]) -> list[str]:
    return [
        topic.name
        for topic in wanted
        if topic.name
        and topic.topic_id == NO_TOPIC_ID
        and topic.name not in node.image.topics
        and topic_name_problem(topic.name) is None
    ]


async def _create_and_answer(
    node: NodeState,
    topics: Topics,
    turns: Turns,
    request: Request,
    wanted: list[MetadataRequestTopic],
    missing: list[str],
) -> MetadataResponse:
    failed = await topics.auto_create(missing)
    shown = []
    async for topic in turns.each(request, wanted):
        error = failed.get(topic.name or "")
        # If another client created the topic at the same moment, it exists now.
        if error is not None and topic.name not in node.image.topics:
            shown.append(topic_view.absent(topic.name, NO_TOPIC_ID, error.code))
        else:
            shown.append(_one(node, topic))
    return _answer(node, request, shown)


def _one(node: NodeState, wanted: MetadataRequestTopic) -> MetadataTopic:
    if wanted.topic_id != NO_TOPIC_ID:
        by_id = node.image.topics_by_id.get(wanted.topic_id)
        if by_id is None:
            return topic_view.absent(None, wanted.topic_id, KafkaCode.UNKNOWN_TOPIC_ID)
        return topic_view.describe(node, by_id)
    name = wanted.name or ""
    topic = node.image.topics.get(name)
    if topic is not None:
        return topic_view.describe(node, topic)
    code = KafkaCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic_name_problem(name) is not None:
        code = KafkaCode.INVALID_TOPIC_EXCEPTION
    return topic_view.absent(name, NO_TOPIC_ID, code)


def _answer(node: NodeState, request: Request, shown: list[MetadataTopic]) -> MetadataResponse:
    cluster = node.cluster
    addresses = cluster.brokers(request.listener) + cluster.departed(request.listener)
    return MetadataResponse(
        brokers=[topic_view.broker(address) for address in addresses],
        cluster_id=node.image.cluster_id,
        controller_id=cluster.controller_id,
        topics=shown,
        error_code=KafkaCode.NONE,
    )
