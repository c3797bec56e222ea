"""IncrementalAlterConfigs (44), versions 0-1: set, delete, append to and subtract from settings."""

from typing import TYPE_CHECKING

from millstream.broker.handlers.alter_configs import answer_each
from millstream.broker.handlers.describe_configs import broker_of, group_of
from millstream.broker.requests import config_view
from millstream.broker.requests.request import Request
from millstream.cluster.changes import ConfigChange, ConfigOperation
from millstream.errors import KafkaCode, KafkaError
from millstream.wire.apis.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
    IncrementallyAlterableConfig,
)

if TYPE_CHECKING:
    from millstream.broker.broker import Broker

HOLDS_NEXT_REQUEST = True


async def handle(
    broker: "Broker", request: Request, body: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    responses = await answer_each(
        body.resources,
        lambda resource: _alter(broker, resource, validate_only=body.validate_only),
    )
    return IncrementalAlterConfigsResponse(responses=responses)


async def _alter(
    broker: "Broker", resource: IncrementalAlterConfigsResource, *, validate_only: bool
) -> None:
    name = resource.resource_name
    changes = [_change(config) for config in resource.configs]
    if len({change.name for change in changes}) < len(changes):
        raise KafkaError(KafkaCode.INVALID_REQUEST, "an option is named twice")
    if resource.resource_type == config_view.TOPIC:
        await broker.topics.alter_topic_configs(name, changes, validate_only=validate_only)
    elif resource.resource_type == config_view.BROKER:
        broker_id = broker_of(broker, name)
        await broker.topics.alter_broker_configs(broker_id, changes, validate_only=validate_only)
    elif resource.resource_type == config_view.GROUP:
        await broker.controller.alter_group_configs(
            group_of(name), changes, validate_only=validate_only
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
