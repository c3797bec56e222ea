"""ShareGroupHeartbeat (76), version 1: membership of a share group (KIP-932)."""

import logging
from uuid import UUID

from millstream.broker.coordination.coordinators import GroupCoordinators
from millstream.broker.coordination.member_quota import Caller
from millstream.broker.coordination.share_state import for_each
from millstream.broker.coordination.sharing import Sharing
from millstream.broker.coordination.transactions import wait_for
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.share_acknowledgements import MEMBER_ID_LENGTH_MAX
from millstream.broker.requests.turns import Turns
from millstream.coordinators.codecs.changes import SharedTopic
from millstream.coordinators.codecs.share_state import NO_START
from millstream.coordinators.consumer.group import JOINING_EPOCH
from millstream.coordinators.groups import requests
from millstream.coordinators.share import heartbeat as share_protocol
from millstream.coordinators.share.heartbeat import ShareHeartbeatReply, ShareHeartbeatRequest
from millstream.coordinators.sizes import optional_texts_bytes, texts_bytes
from millstream.errors import KafkaCode, KafkaError
from millstream.security.acl import ResourceType
from millstream.wire.apis.share_group_heartbeat import (
    ShareGroupAssignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    ShareGroupTopicPartitions,
)

log = logging.getLogger(__name__)


async def handle(
    sharing: Sharing,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    body: ShareGroupHeartbeatRequest,
) -> ShareGroupHeartbeatResponse:
    names = body.subscribed_topic_names
    heartbeat = ShareHeartbeatRequest(
        group_id=body.group_id,
        member_id=body.member_id,
        epoch=body.member_epoch,
        client_id=request.header.client_id or "",
        client_host=request.client_host,
        rack_id=body.rack_id,
        topics=None if names is None else tuple(names),
    )
    try:
        permissions.require(request, ResourceType.GROUP, body.group_id)
        if len(body.member_id) > MEMBER_ID_LENGTH_MAX:
            raise KafkaError(KafkaCode.INVALID_REQUEST, "Invalid member id in the request.")
        async for name in turns.each(request, heartbeat.topics or ()):
            permissions.require(request, ResourceType.TOPIC, name)
        _admit(sharing.groups, request, heartbeat)
    except KafkaError as error:
        return _refuse(error)
    return await _answer(sharing, heartbeat)


def _admit(groups: GroupCoordinators, request: Request, heartbeat: ShareHeartbeatRequest) -> None:
    """Raises KafkaError where the client has no room for what the member brings."""
    size_bytes = texts_bytes(heartbeat.topics or ()) + optional_texts_bytes(heartbeat.rack_id)
    caller = Caller(request.connection.client, request.client_host)
    group_id, member_id = heartbeat.group_id, heartbeat.member_id
    if heartbeat.epoch == JOINING_EPOCH:
        groups.admit_member(group_id, caller, size_bytes, member_id=member_id)
    elif size_bytes:
        groups.admit_change(group_id, caller, size_bytes, member_id=member_id)


async def _answer(
    sharing: Sharing, heartbeat: ShareHeartbeatRequest
) -> ShareGroupHeartbeatResponse:
    try:
        reply = await _beat(sharing, heartbeat)
        if reply.to_initialize and await _initialize(sharing, heartbeat.group_id, reply):
            # Now they can be assigned: the member need not wait for its next heartbeat.
            heartbeat.epoch = reply.epoch
            reply = await _beat(sharing, heartbeat)
    except KafkaError as error:
        return _refuse(error)
    return _shown(reply)


async def _beat(sharing: Sharing, heartbeat: ShareHeartbeatRequest) -> ShareHeartbeatReply:
    return await wait_for(
        sharing.groups.submit(
            heartbeat.group_id,
            lambda state, env: requests.share_heartbeat(state, heartbeat, env),
        )
    )


async def _initialize(sharing: Sharing, group_id: str, reply: ShareHeartbeatReply) -> bool:
    """Have the share coordinator begin partitions. If it cannot, a later heartbeat tries again."""
    topics = reply.to_initialize
    failed = await for_each(
        group_id,
        [(topic_id, number) for topic_id, one in topics.items() for number in one.partitions],
        lambda key: sharing.state.initialize(
            key, state_epoch=reply.group_epoch, start_offset=NO_START
        ),
    )
    if failed:
        log.info("share group %s: %s", group_id, next(iter(failed.values())))
    await note_initialized(sharing, group_id, topics, is_done=not failed)
    return not failed


async def note_initialized(
    sharing: Sharing, group_id: str, topics: dict[UUID, SharedTopic], *, is_done: bool
) -> None:
    """Raises KafkaError."""
    if is_done:
        await wait_for(
            sharing.groups.submit(
                group_id,
                lambda state, env: share_protocol.initialized(
                    requests.share_group(state, group_id), topics, env
                ),
            )
        )
        return
    await wait_for(
        sharing.groups.submit(
            group_id,
            lambda state, env: share_protocol.not_initialized(
                requests.share_group(state, group_id), topics
            ),
        )
    )


def _shown(reply: ShareHeartbeatReply) -> ShareGroupHeartbeatResponse:
    assignment = None
    if reply.assignment is not None:
        assignment = ShareGroupAssignment(
            topic_partitions=[
                ShareGroupTopicPartitions(topic_id=topic_id, partitions=list(partitions))
                for topic_id, partitions in reply.assignment.items()
            ]
        )
    return ShareGroupHeartbeatResponse(
        error_code=KafkaCode.NONE,
        error_message=None,
        member_id=reply.member_id,
        member_epoch=reply.epoch,
        heartbeat_interval_ms=reply.interval_ms,
        assignment=assignment,
    )


def _refuse(error: KafkaError) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(
        error_code=error.code,
        error_message=error.message,
        member_id=None,
        member_epoch=0,
        heartbeat_interval_ms=0,
        assignment=None,
    )
