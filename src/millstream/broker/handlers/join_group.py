"""JoinGroup (11), versions 0-9: become or stay a member; answered with the next generation."""

from collections.abc import Coroutine
from typing import Any, Final

from millstream.broker.coordination.coordinators import GroupCoordinators
from millstream.broker.coordination.member_quota import Caller
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.coordinators.classic.protocol import JoinRequest
from millstream.coordinators.classic.rebalance import JoinReply
from millstream.coordinators.groups import requests
from millstream.coordinators.sizes import optional_texts_bytes, protocols_bytes
from millstream.errors import KafkaCode, KafkaError
from millstream.security.acl import ResourceType
from millstream.wire.apis.join_group import JoinGroupMember, JoinGroupRequest, JoinGroupResponse

NAMES_FEW = True
KNOWS_MEMBER_ID_REQUIRED: Final = 4
MAY_LACK_PROTOCOL: Final = 7
KNOWS_SKIP_ASSIGNMENT: Final = 9
# This client asks for the partitions of its topics 100 ms after its start. A leader that has
# to assign before that joins a second time. If a poll ends during this join, it forgets the
# assignment and stays outside the group (docs/groups.md).
_FIRST_WAIT_MS: Final = {"kafka-python": 150}


def handle(
    groups: GroupCoordinators, permissions: Permissions, request: Request, body: JoinGroupRequest
) -> JoinGroupResponse | Coroutine[Any, Any, JoinGroupResponse]:
    member_id = body.member_id

    def show(reply: JoinReply) -> JoinGroupResponse:
        return _answer(reply, request.version)

    def refuse(error: KafkaError) -> JoinGroupResponse:
        # Without `body`: its metadata are parts of the frame, and the answer may take minutes.
        return _answer(JoinReply(error.code, member_id=member_id), request.version)

    try:
        permissions.require(request, ResourceType.GROUP, body.group_id)
        # Before the metadata is copied: it may be larger than a member's may be.
        size_bytes = protocols_bytes((p.name, p.metadata) for p in body.protocols)
        size_bytes += optional_texts_bytes(
            member_id, body.group_instance_id, request.header.client_id
        )
        caller = Caller(request.connection.client, request.client_host)
        groups.admit_member(body.group_id, caller, size_bytes, member_id=member_id)
    except KafkaError as error:
        return refuse(error)
    join = JoinRequest(
        group_id=body.group_id,
        member_id=member_id,
        instance_id=body.group_instance_id,
        client_id=request.header.client_id or "",
        client_host=request.client_host,
        protocol_type=body.protocol_type,
        protocols=tuple((p.name, bytes(p.metadata)) for p in body.protocols),
        session_timeout_ms=body.session_timeout_ms,
        # Version 0 has one timeout for both.
        rebalance_timeout_ms=(
            body.rebalance_timeout_ms if body.rebalance_timeout_ms >= 0 else body.session_timeout_ms
        ),
        must_know_its_id=request.version >= KNOWS_MEMBER_ID_REQUIRED,
        can_skip_assignment=request.version >= KNOWS_SKIP_ASSIGNMENT,
        first_wait_ms=first_wait_ms(request.connection.client_software),
    )
    return groups.ask(
        body.group_id, lambda state, env: requests.join(state, join, env), show=show, refuse=refuse
    )


def first_wait_ms(client_software: str | None) -> int:
    """How long a client needs before it can lead; `client_software` is its name and version."""
    return _FIRST_WAIT_MS.get((client_software or "").partition(" ")[0], 0)


def _answer(reply: JoinReply, version: int) -> JoinGroupResponse:
    name = reply.protocol_name
    if name is None and (version < MAY_LACK_PROTOCOL or reply.code is KafkaCode.NONE):
        name = ""
    return JoinGroupResponse(
        error_code=reply.code,
        generation_id=reply.generation,
        protocol_type=reply.protocol_type,
        protocol_name=name,
        leader=reply.leader_id,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=[
            JoinGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata,
            )
            for member in reply.members
        ],
    )
