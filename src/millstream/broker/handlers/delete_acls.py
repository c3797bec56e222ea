"""DeleteAcls (31), versions 1-3: remove what the filters select, and return it."""

from millstream.broker.node.state import NodeState
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import Turns
from millstream.broker.security.acls import DISABLED, in_words, read_each, read_filter
from millstream.errors import KafkaCode, KafkaError
from millstream.security.acl import Binding, BindingFilter
from millstream.wire.apis.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from millstream.wire.message import Message

HOLDS_NEXT_REQUEST = True


async def handle(
    node: NodeState,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    body: DeleteAclsRequest,
) -> DeleteAclsResponse:
    if permissions.authorizer is None:
        return _all_failed(body, DISABLED.error())
    wanted = await turns.prepared(request, lambda each: read_each(read_filter, each(body.filters)))
    valid = [one for one in wanted if isinstance(one, BindingFilter)]
    try:
        deleted = await node.metadata.delete_acls(valid)
    except KafkaError as error:
        return _all_failed(body, error)
    for one in dict.fromkeys(binding for some in deleted for binding in some):
        permissions.report_change(request, f"deleted ACL: {in_words(one)}")
    found = iter(deleted)
    return DeleteAclsResponse(
        filter_results=[
            _failed(one) if isinstance(one, KafkaError) else _matched(next(found))
            async for one in turns.each(request, wanted)
        ]
    )


def refuse(request: Request, body: DeleteAclsRequest, code: KafkaCode) -> Message:
    return _all_failed(body, KafkaError(code))


def _all_failed(body: DeleteAclsRequest, error: KafkaError) -> DeleteAclsResponse:
    return DeleteAclsResponse(filter_results=[_failed(error)] * len(body.filters))


def _failed(error: KafkaError) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(
        error_code=error.code, error_message=error.message, matching_acls=[]
    )


def _matched(deleted: list[Binding]) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(
        error_code=KafkaCode.NONE,
        error_message=None,
        matching_acls=[
            DeleteAclsMatchingAcl(
                error_code=KafkaCode.NONE,
                error_message=None,
                resource_type=one.pattern.resource_type,
                resource_name=one.pattern.name,
                pattern_type=one.pattern.pattern_type,
                principal=one.entry.principal,
                host=one.entry.host,
                operation=one.entry.operation,
                permission_type=one.entry.permission,
            )
            for one in deleted
        ],
    )
