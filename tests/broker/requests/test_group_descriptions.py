from collections.abc import Iterator
from typing import Any

import pytest

from millstream.broker.requests import turns
from millstream.errors import KafkaCode
from millstream.wire.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from millstream.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from millstream.wire.apis.find_coordinator import FindCoordinatorRequest
from millstream.wire.apis.share_group_describe import ShareGroupDescribeRequest
from millstream.wire.apis.share_group_heartbeat import ShareGroupHeartbeatRequest
from millstream.wire.message import NO_OPERATIONS
from tests.support.broker import Broker
from tests.support.raw_client import RawClient

GROUPS = [f"group-{number}" for number in range(5)]


@pytest.fixture(scope="module")
def client() -> Iterator[RawClient]:
    """Each group exists twice: with consumers, and with share consumers."""
    with Broker(topics={"orders": 3}) as broker, RawClient(broker.bootstrap) as connected:
        names = [prefix + name for prefix in ("consumer-", "share-") for name in GROUPS]
        connected.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=names), 4)
        for name in GROUPS:
            consumer = ConsumerGroupHeartbeatRequest(
                group_id=f"consumer-{name}",
                member_id="m",
                member_epoch=0,
                rebalance_timeout_ms=300_000,
                subscribed_topic_names=["orders"],
                topic_partitions=[],
            )
            assert connected.ask(consumer, 1).error_code == KafkaCode.NONE
            share = ShareGroupHeartbeatRequest(
                group_id=f"share-{name}",
                member_id="m",
                member_epoch=0,
                subscribed_topic_names=["orders"],
            )
            assert connected.ask(share, 1).error_code == KafkaCode.NONE
        yield connected


def described(client: RawClient, kind: str, *names: str, operations: bool = False) -> list[Any]:
    request = ConsumerGroupDescribeRequest if kind == "consumer" else ShareGroupDescribeRequest
    ids = [f"{kind}-{name}" for name in names]
    body = request(group_ids=ids, include_authorized_operations=operations)
    return list(client.ask(body, 1).groups)


@pytest.mark.parametrize("kind", ["consumer", "share"])
def test_a_group_that_is_named_often_is_described_once(client: RawClient, kind: str) -> None:
    [group] = described(client, kind, *["group-0"] * 100)
    assert group.error_code == KafkaCode.NONE
    assert [member.subscribed_topic_names for member in group.members] == [["orders"]]
    assert group.authorized_operations == NO_OPERATIONS


@pytest.mark.parametrize("kind", ["consumer", "share"])
def test_operations_are_told_to_those_who_ask(client: RawClient, kind: str) -> None:
    [group] = described(client, kind, "group-0", operations=True)
    assert group.authorized_operations > 0


@pytest.mark.parametrize("kind", ["consumer", "share"])
def test_a_response_has_an_end(
    client: RawClient, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "RESPONSE_BYTES_MAX", 1_000)
    groups = described(client, kind, *GROUPS)
    codes = [group.error_code for group in groups]
    assert codes[0] == KafkaCode.NONE
    assert codes[-1] == KafkaCode.INVALID_REQUEST
    assert groups[-1].error_message == turns.TOO_LARGE


@pytest.mark.parametrize("kind", ["consumer", "share"])
def test_a_group_that_does_not_exist(client: RawClient, kind: str) -> None:
    [group] = described(client, kind, "nobody")
    assert group.error_code == KafkaCode.GROUP_ID_NOT_FOUND
