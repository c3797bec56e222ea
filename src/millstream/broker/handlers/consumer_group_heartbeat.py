"""ConsumerGroupHeartbeat (68), versions 0-1: the entire consumer protocol (KIP-848)."""

from collections.abc import Coroutine
from typing import Any

from millstream.broker.coordination.coordinators import GroupCoordinators
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.coordinators.consumer.epochs import VisibleTopics
from millstream.coordinators.consumer.group import JOINING_EPOCH, sorted_assignment
from millstream.coordinators.consumer.heartbeat import HeartbeatReply, HeartbeatRequest
from millstream.coordinators.groups import requests
from millstream.errors import KafkaCode, KafkaError
from millstream.security.acl import ResourceType
from millstream.security.operations import find_rule
from millstream.wire.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
    HeartbeatTopicPartitions,
)


def handle(
    groups: GroupCoordinators,
    permissions: Permissions,
    request: Request,
    body: ConsumerGroupHeartbeatRequest,
) -> ConsumerGroupHeartbeatResponse | Coroutine[Any, Any, ConsumerGroupHeartbeatResponse]:
    owned = body.topic_partitions
    heartbeat = HeartbeatRequest(
        group_id=body.group_id,
        member_id=body.member_id,
        epoch=body.member_epoch,
        client_id=request.header.client_id or "",
        client_host=request.client_host,
        instance_id=body.instance_id,
        rack_id=body.rack_id,
        rebalance_timeout_ms=body.rebalance_timeout_ms,
        topics=None if body.subscribed_topic_names is None else tuple(body.subscribed_topic_names),
        pattern=body.subscribed_topic_regex,
        assignor=body.server_assignor,
        owned=(
            None
            if owned is None
            else sorted_assignment({row.topic_id: row.partitions for row in owned})
        ),
        visible=_visible_topics(permissions, request),
        must_bring_its_id=request.version >= 1,
    )
    try:
        permissions.require(request, ResourceType.GROUP, body.group_id)
        for name in heartbeat.topics or ():
            permissions.require(request, ResourceType.TOPIC, name)
        if heartbeat.epoch == JOINING_EPOCH:
            size_bytes = sum(map(len, heartbeat.topics or ()))
            groups.admit_member(heartbeat.group_id, heartbeat.client_host, size_bytes)
    except KafkaError as error:
        return _refuse(error)
    return groups.ask(
        body.group_id,
        lambda state, env: requests.consumer_heartbeat(state, heartbeat, env),
        show=_answer,
        refuse=_refuse,
    )


def _visible_topics(permissions: Permissions, request: Request) -> VisibleTopics:
    rule = find_rule(request.header.api_key, request.version, ResourceType.TOPIC)

    def includes(name: str) -> bool:
        return permissions.decide(request.connection, rule, name) is None

    return VisibleTopics(permissions.version, includes)


def _answer(reply: HeartbeatReply) -> ConsumerGroupHeartbeatResponse:
    assignment = None
    if reply.assignment is not None:
        assignment = HeartbeatAssignment(
            topic_partitions=[
                HeartbeatTopicPartitions(topic_id=topic_id, partitions=list(partitions))
                for topic_id, partitions in reply.assignment.items()
            ]
        )
    return ConsumerGroupHeartbeatResponse(
        error_code=KafkaCode.NONE,
        error_message=None,
        member_id=reply.member_id,
        member_epoch=reply.epoch,
        heartbeat_interval_ms=reply.interval_ms,
        assignment=assignment,
    )


def _refuse(error: KafkaError) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=error.code,
        error_message=error.message,
        member_id=None,
        member_epoch=0,
        heartbeat_interval_ms=0,
        assignment=None,
    )
