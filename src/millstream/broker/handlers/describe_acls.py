"""DescribeAcls (29), versions 1-3: the ACLs that a filter selects."""

from millstream.broker.node.state import NodeState
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.security.acls import DISABLED, read_filter
from millstream.errors import KafkaCode, KafkaError
from millstream.security.acl import Binding, ResourcePattern
from millstream.wire.apis.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from millstream.wire.message import Message


def handle(
    node: NodeState, permissions: Permissions, request: Request, body: DescribeAclsRequest
) -> DescribeAclsResponse:
    try:
        if permissions.authorizer is None:
            raise DISABLED.error()
        found = node.image.acls.index.find(read_filter(body))
    except KafkaError as error:
        return DescribeAclsResponse(
            error_code=error.code, error_message=error.message, resources=[]
        )
    return DescribeAclsResponse(
        error_code=KafkaCode.NONE, error_message=None, resources=_by_resource(found)
    )


def refuse(request: Request, body: DescribeAclsRequest, code: KafkaCode) -> Message:
    return DescribeAclsResponse(error_code=code, error_message=None, resources=[])


def _by_resource(found: list[Binding]) -> list[DescribeAclsResource]:
    resources: dict[ResourcePattern, DescribeAclsResource] = {}
    for one in found:
        pattern, entry = one.pattern, one.entry
        resource = resources.get(pattern)
        if resource is None:
            resource = resources[pattern] = DescribeAclsResource(
                resource_type=pattern.resource_type,
                resource_name=pattern.name,
                pattern_type=pattern.pattern_type,
                acls=[],
            )
        resource.acls.append(
            AclDescription(
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission,
            )
        )
    return list(resources.values())
