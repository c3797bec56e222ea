"""A client that pushes metrics byte by byte, and the subscription that it needs (KIP-714)."""

import uuid

from millstream.cluster.znodes import encode_uuid
from millstream.errors import KafkaCode
from millstream.wire.apis.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from millstream.wire.apis.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementallyAlterableConfig,
)
from millstream.wire.apis.push_telemetry import PushTelemetryRequest
from tests.support.raw_client import RawClient

_SET, _DELETE = 0, 1


def subscribe(client: RawClient, options: dict[str, str | None]) -> None:
    """Set options of the subscription "all"; None deletes one. Without any, it is gone."""
    configs = [
        IncrementallyAlterableConfig(
            name=name, config_operation=_DELETE if value is None else _SET, value=value
        )
        for name, value in options.items()
    ]
    resource = IncrementalAlterConfigsResource(
        resource_type=16, resource_name="all", configs=configs
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    assert client.ask(request, 1).responses[0].error_code == KafkaCode.NONE


def push_as_new_client(client: RawClient, metrics: bytes) -> str:
    """Returns the id of the client's instance, as Kafka writes it."""
    given = client.ask(GetTelemetrySubscriptionsRequest(client_instance_id=uuid.UUID(int=0)), 0)
    request = PushTelemetryRequest(
        client_instance_id=given.client_instance_id,
        subscription_id=given.subscription_id,
        terminating=False,
        compression_type=0,
        metrics=metrics,
    )
    assert client.ask(request, 0).error_code == KafkaCode.NONE
    return encode_uuid(given.client_instance_id)
