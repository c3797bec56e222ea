"""Metadata (3), versions 0-13: brokers, topics, leaders; creates topics on first use."""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from millstream.broker.requests import topic_view
from millstream.broker.requests.request import Request
from millstream.errors import KafkaCode, KafkaError
from millstream.model import NO_TOPIC_ID, topic_name_problem
from millstream.wire.apis.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataTopic,
)

if TYPE_CHECKING:
    from millstream.broker.broker import Broker

HOLDS_NEXT_REQUEST = True


def handle(
    broker: "Broker", request: Request, body: MetadataRequest
) -> MetadataResponse | Coroutine[Any, Any, MetadataResponse]:
    wanted = body.topics
    if wanted is None or (request.version == 0 and not wanted):
        topics = [topic_view.describe(broker, topic) for topic in broker.image.topics.values()]
        return _answer(broker, request, topics)
    may_create = body.allow_auto_topic_creation and broker.config.boolean(
        "auto.create.topics.enable"
    )
    missing = _missing(broker, wanted) if may_create else []
    if missing:
        return _create_and_answer(broker, request, wanted, missing)
    return _answer(broker, request, [_one(broker, topic) for topic in wanted])


def _missing(broker: "Broker", wanted: list[MetadataRequestTopic]) -> list[str]:
    return [
        topic.name
        for topic in wanted
        if topic.name
        and topic.topic_id == NO_TOPIC_ID
        and topic.name not in broker.image.topics
        and topic_name_problem(topic.name) is None
    ]


async def _create_and_answer(
    broker: "Broker", request: Request, wanted: list[MetadataRequestTopic], missing: list[str]
) -> MetadataResponse:
    failed = await broker.topics.auto_create(list(dict.fromkeys(missing)))
    topics = []
    for topic in wanted:
        error = failed.get(topic.name or "")
        # Somebody else may have created it at the same moment: then it is there.
        if error is not None and topic.name not in broker.image.topics:
            topics.append(topic_view.absent(topic.name, NO_TOPIC_ID, error.code))
        else:
            topics.append(_one(broker, topic))
    return _answer(broker, request, topics)


def _one(broker: "Broker", wanted: MetadataRequestTopic) -> MetadataTopic:
    if wanted.topic_id != NO_TOPIC_ID:
        by_id = broker.image.topics_by_id.get(wanted.topic_id)
        if by_id is None:
            return topic_view.absent(None, wanted.topic_id, KafkaCode.UNKNOWN_TOPIC_ID)
        return topic_view.describe(broker, by_id)
    name = wanted.name or ""
    topic = broker.image.topics.get(name)
    if topic is not None:
        return topic_view.describe(broker, topic)
    code = KafkaCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic_name_problem(name) is not None:
        code = KafkaCode.INVALID_TOPIC_EXCEPTION
    return topic_view.absent(name, NO_TOPIC_ID, code)


def _answer(broker: "Broker", request: Request, topics: list[MetadataTopic]) -> MetadataResponse:
    try:
        brokers = topic_view.brokers(broker, request.listener)
        brokers += topic_view.departed(broker, request.listener)
    except KafkaError as error:
        return MetadataResponse(
            brokers=[],
            topics=[],
            cluster_id=broker.image.cluster_id,
            controller_id=-1,
            error_code=error.code,
        )
    return MetadataResponse(
        brokers=brokers,
        cluster_id=broker.image.cluster_id,
        controller_id=topic_view.controller_id(broker),
        topics=topics,
        error_code=KafkaCode.NONE,
    )
