"""Quotas on a running node: what exceeds one is answered at once, and then nothing is read.

And what a node remembers of the use of its clients.
"""

import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from millstream.broker.security import quota_use
from millstream.broker.security.quota_use import ClientQuotas, Windows
from millstream.cluster.client_entities import ClientEntities, ClientEntity
from millstream.errors import KafkaCode
from millstream.model import Principal
from millstream.security.quotas import MUTATIONS, PRODUCE
from millstream.wire.apis.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlteredQuotaEntity,
    AlteredQuotas,
    QuotaOperation,
)
from millstream.wire.apis.api_versions import ApiVersionsRequest
from millstream.wire.apis.create_topics import CreatableTopic, CreateTopicsRequest
from millstream.wire.apis.describe_client_quotas import (
    DescribeClientQuotasRequest,
    QuotaComponent,
)
from millstream.wire.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from millstream.wire.apis.metadata import MetadataRequest
from millstream.wire.apis.produce import ProducePartitionData, ProduceRequest, ProduceTopicData
from tests.broker.handlers.exchanges import batch
from tests.support.broker import Broker
from tests.support.named_clients import credulous_broker
from tests.support.raw_client import RawClient


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {"quota.window.num": "2", "controller.quota.window.num": "1"}
    with credulous_broker({**settings, "allow.everyone.if.no.acl.found": "true"}) as running:
        yield running


@pytest.fixture
def root(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap, client_id="root") as client:
        yield client


def alter(root: RawClient, entity: dict[str, str | None], **quotas: float | None) -> Any:
    wanted = AlteredQuotas(
        entity=[AlteredQuotaEntity(entity_type=k, entity_name=v) for k, v in entity.items()],
        ops=[
            QuotaOperation(key=name, value=value or 0.0, remove=value is None)
            for name, value in quotas.items()
        ],
    )
    [result] = root.ask(AlterClientQuotasRequest(entries=[wanted], validate_only=False), 1).entries
    return result


def create(client: RawClient, name: str, version: int = 5, partitions: int = 1) -> Any:
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
    )
    return client.ask(CreateTopicsRequest(topics=[topic]), version)


def produce(client: RawClient, topic: str, value: bytes, version: int = 11) -> Any:
    partition = ProducePartitionData(index=0, records=bytes(batch(value)))
    wanted = ProduceTopicData(name=topic, partition_data=[partition])
    return client.ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[wanted]), version)


def code_of(answer: Any) -> int:
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


@pytest.mark.parametrize("version", [8, 11])
def test_a_producer_is_told_to_wait_and_not_read(
    broker: Broker, root: RawClient, version: int
) -> None:
    topic, user = f"produced-{version}", f"producer-{version}"
    create(root, topic)
    with RawClient(broker.bootstrap, client_id=user) as client:
        for _ in range(10):
            # A shortcut from now on, where the version has one.
            assert produce(client, topic, b"v", version).throttle_time_ms == 0
        assert alter(root, {"user": user}, producer_byte_rate=10_000).error_code == 0
        began = time.monotonic()
        answer = produce(client, topic, bytes(25_000), version)
        assert code_of(answer) == 0
        # 15 kB too many at 10 kB/s, one second of which the window covers.
        assert 1_000 < answer.throttle_time_ms < 3_000
        assert time.monotonic() - began < 1
        assert code_of(produce(client, topic, b"v", version)) == 0
        assert time.monotonic() - began >= answer.throttle_time_ms / 1000 * 0.9
        alter(root, {"user": user}, producer_byte_rate=None)
        assert produce(client, topic, bytes(25_000), version).throttle_time_ms == 0


def test_others_are_not_throttled(broker: Broker, root: RawClient) -> None:
    create(root, "others")
    alter(root, {"user": "slow"}, producer_byte_rate=1000)
    with RawClient(broker.bootstrap, client_id="fast") as client:
        for _ in range(5):
            assert produce(client, "others", bytes(5_000)).throttle_time_ms == 0
    alter(root, {"user": "slow"}, producer_byte_rate=None)


@pytest.mark.parametrize("version", [11, 13])
def test_a_consumer_is_told_to_wait(broker: Broker, root: RawClient, version: int) -> None:
    topic, user = f"fetched-{version}", f"consumer-{version}"
    create(root, topic)
    produce(root, topic, bytes(20_000))
    found = root.ask(MetadataRequest(topics=None), 12)
    topic_id = next(each.topic_id for each in found.topics if each.name == topic)
    alter(root, {"client-id": user}, consumer_byte_rate=10_000)
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    wanted = FetchTopic(topic=topic, topic_id=topic_id, partitions=[partition])
    request = FetchRequest(max_wait_ms=100, min_bytes=1, topics=[wanted])
    with RawClient(broker.bootstrap, client_id=user) as client:
        answer = client.ask(request, version)
        assert len(answer.responses[0].partitions[0].records or b"") > 20_000
        assert 500 < answer.throttle_time_ms < 2_000
    alter(root, {"client-id": user}, consumer_byte_rate=None)


def test_one_fetch_gets_what_the_quota_allows_in_a_window(broker: Broker, root: RawClient) -> None:
    create(root, "portions")
    for _ in range(20):
        produce(root, "portions", bytes(1_000))
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    wanted = FetchTopic(topic="portions", partitions=[partition])
    # More than it may get at once: it must not wait for that either.
    request = FetchRequest(max_wait_ms=30_000, min_bytes=15_000, topics=[wanted])
    alter(root, {"client-id": "nibbler"}, consumer_byte_rate=5_000)
    began = time.monotonic()
    with RawClient(broker.bootstrap, client_id="nibbler") as client:
        answer = client.ask(request, 11)
        assert 4_000 < len(answer.responses[0].partitions[0].records or b"") <= 5_000
    assert time.monotonic() - began < 20
    alter(root, {"client-id": "nibbler"}, consumer_byte_rate=None)
    with RawClient(broker.bootstrap, client_id="nibbler") as client:
        answer = client.ask(request, 11)
        assert len(answer.responses[0].partitions[0].records or b"") > 20_000


def test_request_time_is_bounded_too(broker: Broker, root: RawClient) -> None:
    alter(root, {"user": "busy"}, request_percentage=0.0001)
    with RawClient(broker.bootstrap, client_id="busy") as client:
        answer = client.ask(MetadataRequest(topics=None), 12)
        assert 0 < answer.throttle_time_ms <= 1_000
        # Not the first field of the response: only muted.
        client.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)
    alter(root, {"user": "busy"}, request_percentage=None)


def test_changes_of_the_cluster(broker: Broker, root: RawClient) -> None:
    alter(root, {"user": None}, controller_mutation_rate=2)
    with RawClient(broker.bootstrap, client_id="maker") as client:
        answer = create(client, "made-1", 6, partitions=3)
        assert answer.topics[0].error_code == 0
        assert answer.throttle_time_ms > 0
        client.sock.settimeout(30)
        with RawClient(broker.bootstrap, client_id="maker") as other:
            refused = create(other, "made-2", 6)
            assert refused.topics[0].error_code == KafkaCode.THROTTLING_QUOTA_EXCEEDED
        with RawClient(broker.bootstrap, client_id="maker") as older:
            assert create(older, "made-3", 5).topics[0].error_code == 0
    alter(root, {"user": None}, controller_mutation_rate=None)


def test_a_tiny_rate_of_changes_makes_nobody_wait_for_days(broker: Broker, root: RawClient) -> None:
    alter(root, {"user": "tiny"}, controller_mutation_rate=1e-5)
    with RawClient(broker.bootstrap, client_id="tiny") as client:
        # 3e6 seconds by the rate; as milliseconds they do not fit into the response.
        answer = create(client, "tiny", partitions=30)
    assert answer.topics[0].error_code == KafkaCode.NONE
    assert answer.throttle_time_ms == 3_600_000


def test_connections_of_an_address(broker: Broker, root: RawClient) -> None:
    host, _, port = broker.bootstrap.rpartition(":")
    alter(root, {"ip": "127.0.0.1"}, connection_creation_rate=2)
    try:
        opened = [socket.create_connection((host, int(port)), timeout=10) for _ in range(6)]
        refused = [each for each in opened if _is_closed(each)]
        assert 2 <= len(refused) < 6
        for each in opened:
            each.close()
    finally:
        assert alter(root, {"ip": "127.0.0.1"}, connection_creation_rate=None).error_code == 0


def _is_closed(sock: socket.socket) -> bool:
    sock.settimeout(2)
    try:
        return sock.recv(1) == b""
    except TimeoutError:
        return False


def test_quotas_are_described_as_they_were_set(broker: Broker, root: RawClient) -> None:
    alter(root, {"user": "a", "client-id": None}, producer_byte_rate=5, request_percentage=1.5)
    alter(root, {"user": "a"}, producer_byte_rate=6)

    def describe(*components: tuple[str, int, str | None], strict: bool = False) -> Any:
        wanted = [QuotaComponent(entity_type=k, match_type=t, match=m) for k, t, m in components]
        return root.ask(DescribeClientQuotasRequest(components=wanted, strict=strict), 1)

    both = describe(("user", 0, "a")).entries
    assert len(both) == 2
    [alone] = describe(("user", 0, "a"), strict=True).entries
    assert [(one.key, one.value) for one in alone.values] == [("producer_byte_rate", 6.0)]
    [pair] = describe(("user", 2, None), ("client-id", 1, None)).entries
    assert [(one.entity_type, one.entity_name) for one in pair.entity] == [
        ("user", "a"),
        ("client-id", None),
    ]
    assert {one.key: one.value for one in pair.values} == {
        "producer_byte_rate": 5.0,
        "request_percentage": 1.5,
    }
    assert describe(("group", 2, None)).error_code == KafkaCode.UNSUPPORTED_VERSION
    assert describe(("user", 0, None)).error_code == KafkaCode.INVALID_REQUEST
    alter(root, {"user": "a", "client-id": None}, producer_byte_rate=None, request_percentage=None)
    alter(root, {"user": "a"}, producer_byte_rate=None)


@pytest.mark.parametrize(
    ("entity", "code"),
    [
        ({}, KafkaCode.INVALID_REQUEST),
        ({"user": ""}, KafkaCode.INVALID_REQUEST),
        ({"user": "a", "ip": "1.2.3.4"}, KafkaCode.INVALID_REQUEST),
        ({"ip": "localhost"}, KafkaCode.INVALID_REQUEST),
        ({"team": "a"}, KafkaCode.UNSUPPORTED_VERSION),
    ],
)
def test_entities_that_cannot_be(
    root: RawClient, entity: dict[str, str | None], code: KafkaCode
) -> None:
    assert alter(root, entity, producer_byte_rate=1).error_code == code


def quotas_of(*entities: ClientEntity) -> ClientQuotas:
    """100 bytes a second, in one window of a second; and one change a second."""
    known = ClientEntities()
    known.replace({one: {PRODUCE: "100", MUTATIONS: "1"} for one in entities})
    return ClientQuotas(
        known, lambda: 1.0, windows=Windows(1, 1.0), mutation_windows=Windows(1, 1.0)
    )


def use(quotas: ClientQuotas, user: str, client_id: str, amount: float = 150) -> float:
    limits = quotas.of(Principal(f"User:{user}"), client_id)
    assert limits is not None
    return limits.use(PRODUCE, amount)


def test_names_of_any_length_have_their_own_quotas_and_take_little_memory() -> None:
    long = "x" * 20_000
    quotas = quotas_of(
        ClientEntity(client_id=""), ClientEntity(client_id=long + "n"), ClientEntity(user=long)
    )
    assert use(quotas, "ann", long + "a") == 0.5
    assert use(quotas, "ann", long + "b") == 0.5
    # By its own entry, which is found by the whole name.
    assert quotas.of(Principal(f"User:{long}"), "app") is not None
    assert use(quotas, long, "app") == 0.5
    assert use(quotas, long, "other") == 2.0
    assert use(quotas, "ann", long + "n") == 0.5
    assert use(quotas, "ann", long + "a") == 2.0
    for name in (name for key in (*quotas._known, *quotas._windows) for name in key):
        assert name is None or len(name) <= 250


def test_the_window_that_was_used_least_lately_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quota_use, "_KEPT_MAX", 3)
    quotas = quotas_of(ClientEntity(client_id=""))
    for client_id in "abcad":
        use(quotas, "ann", client_id)
    # All are in use; `b` was used before the others.
    assert [client_id for _, _, client_id in quotas._windows] == ["c", "a", "d"]
    assert use(quotas, "ann", "a") > use(quotas, "ann", "b") == 0.5


def test_many_clients_do_not_give_one_its_changes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota_use, "_KEPT_MAX", 3)
    quotas = quotas_of(ClientEntity(client_id=""))
    for client_id in ("a", "b", "c", "a", "d", "a"):
        limits = quotas.of(Principal("User:ann"), client_id)
        assert limits is not None
        limits.take_mutations(1)
    limits = quotas.of(Principal("User:ann"), "a")
    assert limits is not None
    assert limits.mutation_wait() == 2.0


def test_addresses_of_new_connections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota_use, "_KEPT_MAX", 3)
    known = ClientEntities()
    known.replace({ClientEntity(ip=""): {"connection_creation_rate": "1"}})
    quotas = ClientQuotas(
        known, lambda: 1.0, windows=Windows(1, 1.0), mutation_windows=Windows(1, 1.0)
    )
    for number in range(10):
        assert quotas.connection_wait(f"10.0.0.{number}") == 0
    assert quotas.connection_wait("10.0.0.9") > 0
    assert len(quotas._connections) == 3
