"""Metadata (3), versions 0-13: brokers, topics, leaders; creates topics on first use."""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from millstream.broker.requests import topic_view
from millstream.broker.requests.request import Request
from millstream.errors import KafkaCode, KafkaError
from millstream.model import NO_TOPIC_ID, topic_name_problem
from millstream.wire.messages import Struct

if TYPE_CHECKING:
    from millstream.broker.broker import Broker


def handle(
    broker: "Broker", request: Request, body: Struct
) -> Struct | Coroutine[Any, Any, Struct]:
    wants_all = body.topics is None or (request.version == 0 and not body.topics)
    if wants_all:
        topics = [topic_view.describe(broker, topic) for topic in broker.image.topics.values()]
        return _answer(broker, request, topics)
    may_create = body.allow_auto_topic_creation and broker.config.boolean(
        "auto.create.topics.enable"
    )
    missing = [t.name for t in body.topics if _is_missing(broker, t)] if may_create else []
    if missing:
        return _create_and_answer(broker, request, body, missing)
    return _answer(broker, request, [_one(broker, topic) for topic in body.topics])


def _is_missing(broker: "Broker", topic: Struct) -> bool:
    return (
        bool(topic.name)
        and topic.topic_id == NO_TOPIC_ID
        and topic.name not in broker.image.topics
        and topic_name_problem(topic.name) is None
    )


async def _create_and_answer(
    broker: "Broker", request: Request, body: Struct, missing: list[str]
) -> Struct:
    failed = await broker.topics.auto_create(list(dict.fromkeys(missing)))
    topics = []
    for wanted in body.topics:
        error = failed.get(wanted.name)
        # Somebody else may have created it at the same moment: then it is there.
        if error is not None and wanted.name not in broker.image.topics:
            topics.append(topic_view.absent(wanted.name, NO_TOPIC_ID, error.code))
        else:
            topics.append(_one(broker, wanted))
    return _answer(broker, request, topics)


def _one(broker: "Broker", wanted: Struct) -> Struct:
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


def _answer(broker: "Broker", request: Request, topics: list[Struct]) -> Struct:
    try:
        brokers = topic_view.brokers(broker, request.listener)
        brokers += topic_view.departed(broker, request.listener)
    except KafkaError as error:
        return Struct(
            brokers=[],
            topics=[],
            cluster_id=broker.image.cluster_id,
            controller_id=-1,
            error_code=error.code,
        )
    return Struct(
        brokers=brokers,
        cluster_id=broker.image.cluster_id,
        controller_id=topic_view.controller_id(broker),
        topics=topics,
        error_code=KafkaCode.NONE,
    )
