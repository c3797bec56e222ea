"""DescribeConfigs (32), versions 1-4: every option with its default, and where it is set."""

from millstream.broker.node.state import NodeState
from millstream.broker.requests import config_view
from millstream.broker.requests.request import Request
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
    node: NodeState, request: Request, body: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[_describe(node, body, resource) for resource in body.resources]
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
    names = resource.configuration_keys or None
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
