"""DescribeConfigs (32), versions 1-4: every option with its default, and where it is set."""

from collections.abc import Coroutine
from typing import Any

from millstream.broker.node.state import NodeState
from millstream.broker.requests import config_view
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import TOO_LARGE, Turns, Weight, once
from millstream.errors import KafkaCode, KafkaError
from millstream.model import topic_name_problem
from millstream.wire.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribedConfig,
)


def handle(
    node: NodeState, turns: Turns, request: Request, body: DescribeConfigsRequest
) -> DescribeConfigsResponse | Coroutine[Any, Any, DescribeConfigsResponse]:
    return turns.answer_each(
        request,
        once(body.resources, _key),
        lambda resource: _describe(node, body, resource),
        lambda results: DescribeConfigsResponse(results=results),
        Weight(_weight, _too_large),
    )


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
    node: NodeState, body: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    answer = DescribeConfigsResult(
        error_code=KafkaCode.NONE,
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )
    try:
        answer.configs = _entries(node, resource)
    except KafkaError as error:
        answer.error_code, answer.error_message = error.code, error.message
    for entry in answer.configs:
        if not body.include_synonyms:
            entry.synonyms = []
        if not body.include_documentation:
            entry.documentation = None
    return answer


def _entries(node: NodeState, resource: DescribeConfigsResource) -> list[DescribedConfig]:
    # An empty list of keys means all, like a null one.
    names = dict.fromkeys(resource.configuration_keys) if resource.configuration_keys else None
    if resource.resource_type == config_view.TOPIC:
        problem = topic_name_problem(resource.resource_name)
        if problem is not None:
            raise KafkaError(KafkaCode.INVALID_TOPIC_EXCEPTION, problem)
        topic = node.image.topics.get(resource.resource_name)
        if topic is None:
            raise KafkaError(KafkaCode.UNKNOWN_TOPIC_OR_PARTITION)
        return config_view.topic_entries(node, topic, names=names)
    if resource.resource_type == config_view.BROKER:
        broker_of(node, resource.resource_name)
        return config_view.broker_entries(node, names=names)
    if resource.resource_type == config_view.GROUP:
        if not resource.resource_name:
            raise KafkaError(KafkaCode.INVALID_REQUEST, "Group name must not be empty")
        return config_view.group_entries(node, resource.resource_name, names=names)
    raise KafkaError(
        KafkaCode.INVALID_REQUEST, f"resource type {resource.resource_type} has no options here"
    )


def group_of(name: str) -> str:
    """The group in a change. Unlike for nodes, there is no resource for all groups."""
    if not name:
        raise KafkaError(KafkaCode.INVALID_REQUEST, "Default group resources are not allowed.")
    return name


def broker_of(node: NodeState, name: str) -> int | None:
    """The broker of a resource. None, for an empty name, means all brokers."""
    if name not in ("", str(node.node_id)):
        raise KafkaError(
            KafkaCode.INVALID_REQUEST, f"no broker {name!r}; this is broker {node.node_id}"
        )
    return node.node_id if name else None
