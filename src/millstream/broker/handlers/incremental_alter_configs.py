"""IncrementalAlterConfigs (44), versions 0-1: set, delete, append to and subtract from settings."""

from millstream.broker.handlers.alter_configs import alter_each
from millstream.broker.handlers.describe_configs import broker_of, logging_broker, resource_name
from millstream.broker.node.state import NodeState
from millstream.broker.node.topics import Topics
from millstream.broker.requests import config_view
from millstream.broker.requests.loggers import change_levels
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import Turns
from millstream.cluster.changes import ConfigChange, ConfigOperation
from millstream.errors import KafkaCode, KafkaError
from millstream.wire.apis.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
    IncrementallyAlterableConfig,
)

HOLDS_NEXT_REQUEST = True


async def handle(
    node: NodeState,
    topics: Topics,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    body: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse:
    responses = await alter_each(
        turns,
        permissions,
        request,
        body.resources,
        lambda resource: _alter(node, topics, resource, validate_only=body.validate_only),
        validate_only=body.validate_only,
    )
    return IncrementalAlterConfigsResponse(responses=responses)


async def _alter(
    node: NodeState,
    topics: Topics,
    resource: IncrementalAlterConfigsResource,
    *,
    validate_only: bool,
) -> None:
    name = resource.resource_name
    changes = [_change(config) for config in resource.configs]
    if len({change.name for change in changes}) < len(changes):
        raise KafkaError(KafkaCode.INVALID_REQUEST, "an option is named twice")
    if resource.resource_type == config_view.TOPIC:
        await topics.alter_topic_configs(name, changes, validate_only=validate_only)
    elif resource.resource_type == config_view.BROKER:
        broker_id = broker_of(node, name)
        await topics.alter_broker_configs(broker_id, changes, validate_only=validate_only)
    elif resource.resource_type == config_view.BROKER_LOGGER:
        logging_broker(node, name)
        change_levels(changes, validate_only=validate_only)
    elif resource.resource_type in config_view.NAMED:
        kind = config_view.NAMED[resource.resource_type]
        await node.metadata.alter_named_configs(
            kind, resource_name(kind, name), changes, validate_only=validate_only
        )
    else:
        raise KafkaError(
            KafkaCode.INVALID_REQUEST,
            f"resource type {resource.resource_type} has no options here",
        )


def _change(config: IncrementallyAlterableConfig) -> ConfigChange:
    try:
        operation = ConfigOperation(config.config_operation)
    except ValueError:
        raise KafkaError(
            KafkaCode.INVALID_REQUEST, f"unknown operation {config.config_operation}"
        ) from None
    return ConfigChange(config.name, config.value, operation)
