"""DescribeConfigs (32), versions 1-4: every option with its default, and where it is set."""

from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from millstream.broker.broker import Broker


def handle(
    broker: "Broker", request: Request, body: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[_describe(broker, body, resource) for resource in body.resources]
    )


def _describe(
    broker: "Broker", body: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    answer = DescribeConfigsResult(
        error_code=KafkaCode.NONE,
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )
    try:
        answer.configs = _entries(broker, resource)
    except KafkaError as error:
        answer.error_code, answer.error_message = error.code, error.message
    for entry in answer.configs:
        if not body.include_synonyms:
            entry.synonyms = []
        if not body.include_documentation:
            entry.documentation = None
    return answer


def _entries(broker: "Broker", resource: DescribeConfigsResource) -> list[DescribedConfig]:
    # An empty list of keys means all, as a null one does.
    names = resource.configuration_keys or None
    if resource.resource_type == config_view.TOPIC:
        problem = topic_name_problem(resource.resource_name)
        if problem is not None:
            raise KafkaError(KafkaCode.INVALID_TOPIC_EXCEPTION, problem)
        topic = broker.image.topics.get(resource.resource_name)
        if topic is None:
            raise KafkaError(KafkaCode.UNKNOWN_TOPIC_OR_PARTITION)
        return config_view.topic_entries(broker, topic, names=names)
    if resource.resource_type == config_view.BROKER:
        broker_of(broker, resource.resource_name)
        return config_view.broker_entries(broker, names=names)
    if resource.resource_type == config_view.GROUP:
        if not resource.resource_name:
            raise KafkaError(KafkaCode.INVALID_REQUEST, "Group name must not be empty")
        return config_view.group_entries(broker, resource.resource_name, names=names)
    raise KafkaError(
        KafkaCode.INVALID_REQUEST, f"resource type {resource.resource_type} has no options here"
    )


def group_of(name: str) -> str:
    """The group that a change names: unlike nodes, not all groups at once."""
    if not name:
        raise KafkaError(KafkaCode.INVALID_REQUEST, "Default group resources are not allowed.")
    return name


def broker_of(broker: "Broker", name: str) -> int | None:
    """The broker that a resource names; None, an empty name, stands for all of them."""
    if name not in ("", str(broker.node_id)):
        raise KafkaError(
            KafkaCode.INVALID_REQUEST, f"no broker {name!r}; this is broker {broker.node_id}"
        )
    return broker.node_id if name else None
