"""Metadata (3), versions 0-13: brokers, topics, leaders; creates topics on first use.

A topic that is named and missing is created if the request and `auto.create.topics.enable` allow it
and the client may; the answer waits for that. Otherwise it gets UNKNOWN_TOPIC_OR_PARTITION. A
partition without a leader that can be reached gets LEADER_NOT_AVAILABLE, and its topic no error.
"""

from collections.abc import Callable, Coroutine
from typing import Any, Final

from millstream.broker.handlers.describe_cluster import cluster_operations
from millstream.broker.node.state import NodeState
from millstream.broker.node.topics import Topics
from millstream.broker.requests import topic_view
from millstream.broker.requests.kept_partitions import KeptPartitions
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import Turns, once
from millstream.cluster.changes import PARTITIONS_PER_REQUEST_MAX, too_many_partitions
from millstream.errors import KafkaCode
from millstream.model import NO_TOPIC_ID, topic_name_problem
from millstream.security.acl import ResourceType
from millstream.security.operations import AUTO_CREATE, LISTING
from millstream.wire.apis.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataTopic,
)
from millstream.wire.message import NO_OPERATIONS

HOLDS_NEXT_REQUEST = True
_TOPIC: Final = ResourceType.TOPIC


def handle(
    node: NodeState,
    topics: Topics,
    turns: Turns,
    permissions: Permissions,
    kept: KeptPartitions,
    request: Request,
    body: MetadataRequest,
) -> MetadataResponse | Coroutine[Any, Any, MetadataResponse]:
    if body.topics is None or (request.version == 0 and not body.topics):
        operations = _operations(permissions, request, body)
        return turns.answer_each(
            request,
            [
                topic
                for topic in node.image.topics.values()
                if permissions.allows(request, _TOPIC, topic.name, LISTING)
            ],
            lambda topic: _shown(topic_view.describe(node, kept, topic), operations),
            lambda shown: _answer(node, permissions, request, body, shown),
        )
    named = body.topics
    return turns.prepare(
        request,
        lambda each: once(each(named), key=lambda topic: (topic.name, topic.topic_id)),
        lambda wanted: _answer_named(node, topics, turns, permissions, kept, request, body, wanted),
    )


def _answer_named(
    node: NodeState,
    topics: Topics,
    turns: Turns,
    permissions: Permissions,
    kept: KeptPartitions,
    request: Request,
    body: MetadataRequest,
    wanted: list[MetadataRequestTopic],
) -> MetadataResponse | Coroutine[Any, Any, MetadataResponse]:
    may_create = body.allow_auto_topic_creation and node.config.boolean("auto.create.topics.enable")
    # To look whether any of many topics is missing may itself take turns.
    if may_create and (
        request.is_long or any(_is_missing(node, permissions, request, topic) for topic in wanted)
    ):
        return _create_and_answer(node, topics, turns, permissions, kept, request, body, wanted)
    operations = _operations(permissions, request, body)
    return turns.answer_each(
        request,
        wanted,
        lambda topic: _shown(_one(node, permissions, kept, request, topic), operations),
        lambda shown: _answer(node, permissions, request, body, shown),
    )


def _operations(
    permissions: Permissions, request: Request, body: MetadataRequest
) -> Callable[[str], int]:
    """What the client may do with a topic, if it asks."""
    if not body.include_topic_authorized_operations:
        return lambda name: NO_OPERATIONS
    return lambda name: permissions.operations(request, _TOPIC, name)


def _shown(topic: MetadataTopic, operations: Callable[[str], int]) -> MetadataTopic:
    if topic.error_code == KafkaCode.NONE and topic.name is not None:
        topic.topic_authorized_operations = operations(topic.name)
    return topic


def _is_missing(
    node: NodeState, permissions: Permissions, request: Request, topic: MetadataRequestTopic
) -> bool:
    """Could the topic be created? Without the permission to see it, it is not missing."""
    return bool(
        topic.name
        and topic.topic_id == NO_TOPIC_ID
        and topic.name not in node.image.topics
        and topic_name_problem(topic.name) is None
        and permissions.allows(request, _TOPIC, topic.name)
    )


async def _create_and_answer(
    node: NodeState,
    topics: Topics,
    turns: Turns,
    permissions: Permissions,
    kept: KeptPartitions,
    request: Request,
    body: MetadataRequest,
    wanted: list[MetadataRequestTopic],
) -> MetadataResponse:
    may_create_all = permissions.allows_cluster(request, AUTO_CREATE)
    allowed, failed = [], {}
    async for topic in turns.each(request, wanted):
        if topic.name is None or not _is_missing(node, permissions, request, topic):
            continue
        denied = None
        if not may_create_all:
            denied = permissions.denial(request, _TOPIC, topic.name, AUTO_CREATE)
        if denied is not None:
            failed[topic.name] = denied.error()
        else:
            allowed.append(topic.name)
    if len(allowed) > PARTITIONS_PER_REQUEST_MAX:
        too_many = too_many_partitions()
        failed |= {name: too_many async for name in turns.each(request, allowed)}
    else:
        failed |= await topics.auto_create(allowed)
    operations = _operations(permissions, request, body)
    shown = []
    async for topic in turns.each_in_line(request, wanted):
        error = failed.get(topic.name or "")
        # If another client created the topic at the same moment, it exists now.
        if error is not None and topic.name not in node.image.topics:
            shown.append(topic_view.absent(topic.name, NO_TOPIC_ID, error.code))
        else:
            shown.append(_shown(_one(node, permissions, kept, request, topic), operations))
    return _answer(node, permissions, request, body, shown)


def _one(
    node: NodeState,
    permissions: Permissions,
    kept: KeptPartitions,
    request: Request,
    wanted: MetadataRequestTopic,
) -> MetadataTopic:
    if wanted.topic_id != NO_TOPIC_ID:
        by_id = node.image.topics_by_id.get(wanted.topic_id)
        # Without the permission to see it, it looks as if there were none.
        if by_id is None or not permissions.allows(request, _TOPIC, by_id.name):
            return topic_view.absent(None, wanted.topic_id, KafkaCode.UNKNOWN_TOPIC_ID)
        return topic_view.describe(node, kept, by_id)
    name = wanted.name or ""
    denied = permissions.denial(request, _TOPIC, name)
    if denied is not None:
        return topic_view.absent(name, NO_TOPIC_ID, denied.code)
    topic = node.image.topics.get(name)
    if topic is not None:
        return topic_view.describe(node, kept, topic)
    code = KafkaCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic_name_problem(name) is not None:
        code = KafkaCode.INVALID_TOPIC_EXCEPTION
    return topic_view.absent(name, NO_TOPIC_ID, code)


def _answer(
    node: NodeState,
    permissions: Permissions,
    request: Request,
    body: MetadataRequest,
    shown: list[MetadataTopic],
) -> MetadataResponse:
    cluster = node.cluster
    if cluster.is_fenced:
        # Clients keep asking a node that answers: this one sends them to the others.
        request.connection.close_when_sent("this node is fenced, others lead now")
    addresses = cluster.brokers(request.listener) + cluster.departed(request.listener)
    return MetadataResponse(
        brokers=[topic_view.broker(address) for address in addresses],
        cluster_id=node.image.cluster_id,
        controller_id=cluster.controller_id,
        topics=shown,
        cluster_authorized_operations=cluster_operations(
            permissions, request, is_wanted=body.include_cluster_authorized_operations
        ),
        error_code=KafkaCode.NONE,
    )
