"""DescribeConfigs (32), versions 1-4: every option with its default, and where it is set."""

from collections.abc import Coroutine, Hashable, Mapping, Sequence
from copy import copy
from typing import Any

from millstream.broker.node.state import NodeState
from millstream.broker.requests import config_view
from millstream.broker.requests.loggers import logger_entries
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import TOO_LARGE, Turns, Weight, once
from millstream.cluster.state import NamedResource
from millstream.errors import KafkaCode, KafkaError
from millstream.model import topic_name_problem
from millstream.security.acl import CLUSTER_NAME, ResourceType
from millstream.wire.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribedConfig,
)


def handle(
    node: NodeState,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    body: DescribeConfigsRequest,
) -> DescribeConfigsResponse | Coroutine[Any, Any, DescribeConfigsResponse]:
    known: dict[Hashable, list[DescribedConfig]] = {}

    def answer(
        wanted: Sequence[DescribeConfigsResource],
    ) -> DescribeConfigsResponse | Coroutine[Any, Any, DescribeConfigsResponse]:
        return turns.answer_each(
            request,
            wanted,
            lambda resource: _describe(node, permissions, request, body, resource, known),
            lambda results: DescribeConfigsResponse(results=results),
            Weight(_weight, _too_large),
        )

    return turns.prepare(request, lambda each: once(each(body.resources), _key), answer)


def _key(resource: DescribeConfigsResource) -> tuple[int, str, tuple[str, ...]]:
    keys = resource.configuration_keys or ()
    return resource.resource_type, resource.resource_name, tuple(keys)


def _weight(result: DescribeConfigsResult) -> int:
    return 50 + sum(
        60 + len(entry.value or "") + 60 * len(entry.synonyms) + len(entry.documentation or "")
        for entry in result.configs
    )


def _too_large(resource: DescribeConfigsResource) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=KafkaCode.INVALID_REQUEST,
        error_message=TOO_LARGE,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )


def _describe(
    node: NodeState,
    permissions: Permissions,
    request: Request,
    body: DescribeConfigsRequest,
    resource: DescribeConfigsResource,
    known: dict[Hashable, list[DescribedConfig]],
) -> DescribeConfigsResult:
    """`known` has the entries of earlier resources: most have the same settings."""
    answer = DescribeConfigsResult(
        error_code=KafkaCode.NONE,
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )
    try:
        require(permissions, request, resource.resource_type, resource.resource_name)
        settings = frozenset(_overrides(node, resource).items())
    except KafkaError as error:
        answer.error_code, answer.error_message = error.code, error.message
        return answer
    key = (resource.resource_type, settings, tuple(resource.configuration_keys or ()))
    if key not in known:
        known[key] = _entries(node, body, resource)
    answer.configs = known[key]
    return answer


def _overrides(node: NodeState, resource: DescribeConfigsResource) -> Mapping[str, str]:
    """The resource's own settings. Raises KafkaError where there is no such resource."""
    name = resource.resource_name
    if resource.resource_type == config_view.TOPIC:
        problem = topic_name_problem(name)
        if problem is not None:
            raise KafkaError(KafkaCode.INVALID_TOPIC_EXCEPTION, problem)
        topic = node.image.topics.get(name)
        if topic is None:
            raise KafkaError(KafkaCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic.overrides
    if resource.resource_type == config_view.BROKER:
        broker_of(node, name)
        return {}
    if resource.resource_type == config_view.BROKER_LOGGER:
        logging_broker(node, name)
        return {}
    if resource.resource_type in config_view.NAMED:
        kind = config_view.NAMED[resource.resource_type]
        return node.image.named_overrides[kind].get(resource_name(kind, name), {})
    raise KafkaError(
        KafkaCode.INVALID_REQUEST, f"resource type {resource.resource_type} has no options here"
    )


def _entries(
    node: NodeState, body: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> list[DescribedConfig]:
    name = resource.resource_name
    # An empty list of keys means all, like a null one.
    keys = dict.fromkeys(resource.configuration_keys) if resource.configuration_keys else None
    if resource.resource_type == config_view.TOPIC:
        entries = config_view.topic_entries(node, node.image.topics[name], names=keys)
    elif resource.resource_type == config_view.BROKER:
        entries = config_view.broker_entries(node, names=keys)
    elif resource.resource_type == config_view.BROKER_LOGGER:
        entries = logger_entries(names=keys)
    else:
        kind = config_view.NAMED[resource.resource_type]
        entries = config_view.named_entries(node, kind, name, names=keys)
    return [_shown(body, entry) for entry in entries]


def _shown(body: DescribeConfigsRequest, entry: DescribedConfig) -> DescribedConfig:
    """As much of it as the client wants; the entry itself may belong to other requests, too."""
    if body.include_synonyms and body.include_documentation:
        return entry
    shown = copy(entry)
    if not body.include_synonyms:
        shown.synonyms = []
    if not body.include_documentation:
        shown.documentation = None
    return shown


def require(permissions: Permissions, request: Request, resource_type: int, name: str) -> None:
    """Raises KafkaError if the client may not see or change the options of this resource."""
    if resource_type == config_view.TOPIC:
        permissions.require(request, ResourceType.TOPIC, name)
    elif resource_type == config_view.GROUP:
        permissions.require(request, ResourceType.GROUP, name)
    else:
        permissions.require(request, ResourceType.CLUSTER, CLUSTER_NAME)


def resource_name(kind: NamedResource, name: str) -> str:
    """The group or the subscription. Unlike for nodes, there is no resource for all of them."""
    if not name:
        whose = "Group" if kind is NamedResource.GROUP else "Client metrics subscription"
        raise KafkaError(KafkaCode.INVALID_REQUEST, f"{whose} name must not be empty")
    return name


def logging_broker(node: NodeState, name: str) -> None:
    """Loggers belong to one process. Raises KafkaError where it is not this one."""
    if broker_of(node, name) is None:
        raise KafkaError(KafkaCode.INVALID_REQUEST, "the resource of loggers is the id of a node")


def broker_of(node: NodeState, name: str) -> int | None:
    """The broker of a resource. None, for an empty name, means all brokers."""
    if name not in ("", str(node.node_id)):
        raise KafkaError(
            KafkaCode.INVALID_REQUEST, f"no broker {name!r}; this is broker {node.node_id}"
        )
    return node.node_id if name else None
