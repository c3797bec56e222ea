"""Covers broker/handlers/push_telemetry.py, broker/handlers/get_telemetry_subscriptions.py."""

import uuid
from collections.abc import Iterator

import pytest

from millstream.errors import KafkaCode
from millstream.model import Codec
from millstream.records.compression import compress
from millstream.wire.apis.api_versions import ApiVersionsRequest
from millstream.wire.apis.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from millstream.wire.apis.push_telemetry import PushTelemetryRequest
from tests.support.otlp import gauge, metrics_data
from tests.support.raw_client import RawClient
from tests.support.telemetry import subscribe

NOBODY = uuid.UUID(int=0)
METRICS = compress(Codec.ZSTD, metrics_data(gauge("m", 1.0)))


@pytest.fixture
def subscribed(client: RawClient) -> Iterator[RawClient]:
    subscribe(client, {"metrics": "*", "interval.ms": "3600000"})
    yield client
    subscribe(client, {"metrics": None, "interval.ms": None})


def get(client: RawClient, instance_id: uuid.UUID = NOBODY) -> GetTelemetrySubscriptionsResponse:
    return client.ask(GetTelemetrySubscriptionsRequest(client_instance_id=instance_id), 0)


def push(
    client: RawClient,
    given: GetTelemetrySubscriptionsResponse,
    metrics: bytes = METRICS,
    *,
    compression_type: int = Codec.ZSTD,
    terminating: bool = False,
) -> int:
    request = PushTelemetryRequest(
        client_instance_id=given.client_instance_id,
        subscription_id=given.subscription_id,
        terminating=terminating,
        compression_type=compression_type,
        metrics=metrics,
    )
    return client.ask(request, 0).error_code


def listed(client: RawClient) -> set[int]:
    request = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
    return {one.api_key for one in client.ask(request, 4).api_keys}


def test_clients_learn_of_telemetry_only_while_somebody_wants_it(client: RawClient) -> None:
    assert not listed(client) & {71, 72}
    subscribe(client, {"metrics": "*"})
    assert listed(client) >= {71, 72}
    subscribe(client, {"metrics": None})
    assert not listed(client) & {71, 72}


def test_a_client_gets_an_id_and_what_to_push(subscribed: RawClient) -> None:
    given = get(subscribed)
    assert given.error_code == KafkaCode.NONE
    assert given.client_instance_id != NOBODY
    assert given.accepted_compression_types == [Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY]
    assert (given.requested_metrics, given.push_interval_ms) == (["*"], 300_000)
    assert (given.telemetry_max_bytes, given.delta_temporality) == (1_048_576, False)
    again = get(subscribed, given.client_instance_id)
    assert again.error_code == KafkaCode.THROTTLING_QUOTA_EXCEEDED
    assert get(subscribed).client_instance_id != given.client_instance_id


def test_pushes_are_accepted_until_the_last(subscribed: RawClient) -> None:
    given = get(subscribed)
    assert push(subscribed, given) == KafkaCode.NONE
    assert push(subscribed, given) == KafkaCode.THROTTLING_QUOTA_EXCEEDED
    assert push(subscribed, given, terminating=True) == KafkaCode.NONE
    assert push(subscribed, given, terminating=True) == KafkaCode.INVALID_REQUEST
    assert push(subscribed, get(subscribed), b"") == KafkaCode.NONE


def test_hostile_pushes_get_their_codes_and_the_node_lives(subscribed: RawClient) -> None:
    def code(metrics: bytes, compression_type: int = Codec.ZSTD) -> int:
        return push(subscribed, get(subscribed), metrics, compression_type=compression_type)

    assert code(b"\x0a\xff\xff\xff") == KafkaCode.INVALID_RECORD
    assert code(b"\x0a\xff\xff\xff", Codec.NONE) == KafkaCode.INVALID_RECORD
    assert code(METRICS, 17) == KafkaCode.UNSUPPORTED_COMPRESSION_TYPE
    assert code(METRICS, -1) == KafkaCode.UNSUPPORTED_COMPRESSION_TYPE
    assert code(bytes(1_048_577), Codec.NONE) == KafkaCode.TELEMETRY_TOO_LARGE
    assert code(compress(Codec.ZSTD, bytes(50 << 20))) == KafkaCode.TELEMETRY_TOO_LARGE
    unknown = get(subscribed)
    unknown.subscription_id ^= 1
    assert push(subscribed, unknown) == KafkaCode.UNKNOWN_SUBSCRIPTION_ID
    unknown.client_instance_id = NOBODY
    assert push(subscribed, unknown) == KafkaCode.INVALID_REQUEST
    assert code(METRICS) == KafkaCode.NONE


def test_metrics_that_nobody_asked_for_are_not_read(client: RawClient) -> None:
    assert push(client, get(client), b"\x0a\xff\xff\xff") == KafkaCode.NONE
