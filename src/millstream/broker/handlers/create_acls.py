"""CreateAcls (30), versions 1-3: valid ACLs are added, the others get an error each."""

import asyncio
from typing import Final

from millstream.broker.node.state import NodeState
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import Turns
from millstream.broker.security.acls import DISABLED, in_words, read_binding, read_each
from millstream.errors import KafkaCode, KafkaError
from millstream.security.acl import Binding
from millstream.wire.apis.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from millstream.wire.message import Message

HOLDS_NEXT_REQUEST = True

# So many lines of the audit log take some milliseconds.
_REPORTED_AT_ONCE: Final = 100


async def handle(
    node: NodeState,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    body: CreateAclsRequest,
) -> CreateAclsResponse:
    if permissions.authorizer is None:
        return CreateAclsResponse(results=[_result(DISABLED.error())] * len(body.creations))
    wanted = await turns.prepared(
        request, lambda each: read_each(read_binding, each(body.creations))
    )
    valid = [one for one in wanted if isinstance(one, Binding)]
    failure: KafkaError | None = None
    try:
        await node.metadata.create_acls(valid)
    except KafkaError as error:
        failure = error.kept()
    else:
        for number, one in enumerate(valid, 1):
            permissions.report_change(request, f"added ACL: {in_words(one)}")
            if number % _REPORTED_AT_ONCE == 0:
                # Not in turns, which end when the client has left: its changes are made.
                await asyncio.sleep(0)
    return CreateAclsResponse(
        results=[
            _result(failure if isinstance(one, Binding) else one)
            async for one in turns.each(request, wanted)
        ]
    )


def refuse(request: Request, body: CreateAclsRequest, code: KafkaCode) -> Message:
    return CreateAclsResponse(results=[_result(KafkaError(code))] * len(body.creations))


def _result(error: KafkaError | None) -> AclCreationResult:
    if error is None:
        return AclCreationResult(error_code=KafkaCode.NONE, error_message=None)
    return AclCreationResult(error_code=error.code, error_message=error.message)
