"""AlterConfigs (33), versions 0-2: replaces all settings of a resource."""

from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from millstream.broker.handlers.describe_configs import broker_of, require, resource_name
from millstream.broker.node.state import NodeState
from millstream.broker.node.topics import Topics
from millstream.broker.requests import config_view
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import Turns, distinct
from millstream.errors import KafkaCode, KafkaError
from millstream.wire.apis.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
    AlterConfigsResult,
)
from millstream.wire.apis.incremental_alter_configs import IncrementalAlterConfigsResource

HOLDS_NEXT_REQUEST = True

# Of one resource. None has a third of it.
_OPTIONS_MAX: Final = 1_000

Resource = TypeVar("Resource", AlterConfigsResource, IncrementalAlterConfigsResource)


async def handle(
    node: NodeState,
    topics: Topics,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    body: AlterConfigsRequest,
) -> AlterConfigsResponse:
    responses = await alter_each(
        turns,
        permissions,
        request,
        body.resources,
        lambda resource: _replace(node, topics, resource, validate_only=body.validate_only),
        validate_only=body.validate_only,
    )
    return AlterConfigsResponse(responses=responses)


async def alter_each(
    turns: Turns,
    permissions: Permissions,
    request: Request,
    resources: list[Resource],
    change: Callable[[Resource], Coroutine[Any, Any, None]],
    *,
    validate_only: bool,
) -> list[AlterConfigsResult]:
    """Change each resource of a request; each gets its own error code."""
    answers = []
    wanted, twice = await turns.prepared(request, lambda each: distinct(each(resources), _key))
    async for resource in turns.each(request, wanted):
        answer = AlterConfigsResult(
            error_code=KafkaCode.NONE,
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        try:
            if _key(resource) in twice:
                raise KafkaError(KafkaCode.INVALID_REQUEST, "resource named twice in one request")
            if len(resource.configs) > _OPTIONS_MAX:
                raise KafkaError(KafkaCode.INVALID_REQUEST, "more options than there are")
            require(permissions, request, resource.resource_type, resource.resource_name)
            await change(resource)
            if not validate_only:
                names = ", ".join(config.name for config in resource.configs)
                whose = config_view.resource_text(resource.resource_type, resource.resource_name)
                permissions.report_change(request, f"options of {whose}: {names}")
        except KafkaError as error:
            answer.error_code, answer.error_message = error.code, error.message
        answers.append(answer)
    return answers


def _key(
    resource: AlterConfigsResource | IncrementalAlterConfigsResource,
) -> tuple[int, str]:
    return resource.resource_type, resource.resource_name


async def _replace(
    node: NodeState, topics: Topics, resource: AlterConfigsResource, *, validate_only: bool
) -> None:
    name = resource.resource_name
    settings = {config.name: config.value for config in resource.configs}
    if resource.resource_type == config_view.TOPIC:
        await topics.replace_topic_configs(name, settings, validate_only=validate_only)
    elif resource.resource_type == config_view.BROKER:
        broker_id = broker_of(node, name)
        await topics.replace_broker_configs(broker_id, settings, validate_only=validate_only)
    elif resource.resource_type in config_view.NAMED:
        kind = config_view.NAMED[resource.resource_type]
        await node.metadata.replace_named_configs(
            kind, resource_name(kind, name), settings, validate_only=validate_only
        )
    else:
        raise KafkaError(
            KafkaCode.INVALID_REQUEST,
            f"resource type {resource.resource_type} has no options here",
        )
