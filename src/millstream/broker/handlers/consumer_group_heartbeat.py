"""ConsumerGroupHeartbeat (68), versions 0-1: the entire consumer protocol (KIP-848)."""

from collections.abc import Coroutine
from typing import Any

from millstream.broker.coordination.coordinators import GroupCoordinators
from millstream.broker.coordination.member_quota import Caller
from millstream.broker.requests.pacing import Each
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import Turns, stop_if_abandoned
from millstream.coordinators.consumer.group import JOINING_EPOCH, sorted_assignment
from millstream.coordinators.consumer.heartbeat import HeartbeatReply, HeartbeatRequest
from millstream.coordinators.consumer.pattern import PatternMatch
from millstream.coordinators.groups import requests
from millstream.coordinators.sizes import optional_texts_bytes, subscription_bytes
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
    turns: Turns,
    permissions: Permissions,
    request: Request,
    body: ConsumerGroupHeartbeatRequest,
) -> ConsumerGroupHeartbeatResponse | Coroutine[Any, Any, ConsumerGroupHeartbeatResponse]:
    denied = permissions.denial(request, ResourceType.GROUP, body.group_id)
    if denied is not None:
        return _refuse(denied.error())

    def beat(
        heartbeat: HeartbeatRequest,
    ) -> ConsumerGroupHeartbeatResponse | Coroutine[Any, Any, ConsumerGroupHeartbeatResponse]:
        heartbeat.visible_version = permissions.version
        if heartbeat.topics or _needs_matches(groups, heartbeat):
            return _subscribe(groups, turns, permissions, request, heartbeat)
        return _beat(groups, request, heartbeat)

    return turns.prepare(request, lambda each: _heartbeat(each, request, body), beat)


def _heartbeat(
    each: Each, request: Request, body: ConsumerGroupHeartbeatRequest
) -> HeartbeatRequest:
    owned = body.topic_partitions
    return HeartbeatRequest(
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
            else sorted_assignment({row.topic_id: row.partitions for row in each(owned)})
        ),
        must_bring_its_id=request.version >= 1,
    )


async def _subscribe(
    groups: GroupCoordinators,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    heartbeat: HeartbeatRequest,
) -> ConsumerGroupHeartbeatResponse:
    """A member that names its topics may name very many, and a pattern may match very many."""
    try:
        async for name in turns.each(request, heartbeat.topics or ()):
            permissions.require(request, ResourceType.TOPIC, name)
    except KafkaError as error:
        return _refuse(error)
    if _needs_matches(groups, heartbeat):
        answer = await _beat_with_matches(groups, turns, permissions, request, heartbeat)
    else:
        answer = _beat(groups, request, heartbeat)
    return answer if isinstance(answer, ConsumerGroupHeartbeatResponse) else await answer


def _needs_matches(groups: GroupCoordinators, heartbeat: HeartbeatRequest) -> bool:
    try:
        return groups.unmatched_pattern(heartbeat) is not None
    except KafkaError:
        # The group is not here, which `_beat` answers.
        return False


async def _beat_with_matches(
    groups: GroupCoordinators,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    heartbeat: HeartbeatRequest,
) -> ConsumerGroupHeartbeatResponse | Coroutine[Any, Any, ConsumerGroupHeartbeatResponse]:
    async with groups.matching.turn(request.connection.client):
        stop_if_abandoned(request)
        try:
            # Another member of the group may have had it matched.
            pattern = groups.unmatched_pattern(heartbeat)
            if pattern is not None:
                heartbeat.matched = await _match(groups, turns, permissions, request, pattern)
                groups.admit_matches(heartbeat.group_id, _caller(request), heartbeat.matched)
        except KafkaError as error:
            return _refuse(error)
        return _beat(groups, request, heartbeat)


async def _match(
    groups: GroupCoordinators,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    pattern: str,
) -> PatternMatch:
    """Raises KafkaError if the pattern is invalid."""
    version = permissions.version
    rule = find_rule(request.header.api_key, request.version, ResourceType.TOPIC)
    matched = await groups.matching.match(pattern, turns.in_thread, turns.pace(request))
    visible = [
        name
        async for name in turns.each(request, matched.names)
        if permissions.decide(request.connection, rule, name) is None
    ]
    return PatternMatch(pattern, tuple(visible), matched.topics_version, version)


def _caller(request: Request) -> Caller:
    return Caller(request.connection.client, request.client_host)


def _admit(groups: GroupCoordinators, request: Request, heartbeat: HeartbeatRequest) -> None:
    """Raises KafkaError where the client has no room for what the member brings."""
    size_bytes = subscription_bytes(heartbeat.topics, heartbeat.pattern)
    size_bytes += optional_texts_bytes(heartbeat.instance_id, heartbeat.rack_id, heartbeat.assignor)
    group_id, member_id = heartbeat.group_id, heartbeat.member_id
    if heartbeat.epoch == JOINING_EPOCH:
        groups.admit_member(group_id, _caller(request), size_bytes, member_id=member_id)
    elif size_bytes:
        groups.admit_change(group_id, _caller(request), size_bytes, member_id=member_id)


def _beat(
    groups: GroupCoordinators, request: Request, heartbeat: HeartbeatRequest
) -> ConsumerGroupHeartbeatResponse | Coroutine[Any, Any, ConsumerGroupHeartbeatResponse]:
    try:
        _admit(groups, request, heartbeat)
    except KafkaError as error:
        return _refuse(error)
    return groups.ask(
        heartbeat.group_id,
        lambda state, env: requests.consumer_heartbeat(state, heartbeat, env),
        show=_answer,
        refuse=_refuse,
    )


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
