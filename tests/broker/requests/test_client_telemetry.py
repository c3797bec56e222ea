"""Who may ask and push when, and what is kept."""

import weakref
from dataclasses import dataclass, field
from uuid import UUID

import pytest

from millstream.broker.requests import client_telemetry
from millstream.broker.requests.client_telemetry import (
    ClientTelemetry,
    Push,
    Wanted,
    match_client,
    read_payload,
)
from millstream.config import load_config, parse_subscription
from millstream.errors import KafkaCode, KafkaError
from millstream.model import ANONYMOUS, Codec, Principal
from millstream.records.compression import compress
from millstream.wire.otlp import MetricPoint, ReadMetrics
from tests.support.otlp import gauge, metrics_data

CONFIG = load_config()
ONE, TWO = UUID(int=7 << 64 | 5), UUID(int=8)
EVERY_SECOND = {"all": {"metrics": "*", "interval.ms": "1000"}}


@dataclass
class FakeSocket:
    descriptor: int = 5

    def fileno(self) -> int:
        return self.descriptor

    def close(self) -> None:
        self.descriptor = -1


@dataclass
class FakeConnection:
    sock: FakeSocket = field(default_factory=FakeSocket)
    client: str = "10.0.0.1"
    peer: str = "10.0.0.1:5000"
    client_id: str | None = "app"
    client_software: str | None = "apache-kafka-java 4.3.0"
    principal: Principal = field(default_factory=lambda: ANONYMOUS)


class World:
    """One client; the time is what a test says."""

    def __init__(self, subscriptions: dict[str, dict[str, str]] | None = None) -> None:
        self.telemetry = ClientTelemetry()
        self.subscriptions = EVERY_SECOND if subscriptions is None else subscriptions
        self.connection = FakeConnection()

    def ask(self, now_ms: int, instance_id: UUID = ONE) -> Wanted:
        self.telemetry.subscribe(CONFIG, self.subscriptions, now_ms)
        return self.telemetry.ask(instance_id, self.connection, now_ms)

    def push(self, now_ms: int, wanted: Wanted, instance_id: UUID = ONE, **changed: int) -> None:
        self.telemetry.subscribe(CONFIG, self.subscriptions, now_ms)
        terms = {"is_terminating": False, "compression_type": 4, "size_bytes": 10, **changed}
        push = Push(
            **{"subscription_id": wanted.subscription_id, "size_bytes_max": 100, **terms}  # type: ignore[arg-type]
        )
        client = self.telemetry.begin_push(instance_id, self.connection, push, now_ms)
        self.telemetry.end_push(client, ReadMetrics([point()]), now_ms)


def point(name: str = "m") -> MetricPoint:
    return MetricPoint(name, "gauge", "", {}, 1.0, None, False)


def refused(code: KafkaCode):
    return pytest.raises(KafkaError, check=lambda error: error.code is code)


def matched(*subscriptions: dict[str, str], **attributes: str) -> Wanted:
    parsed = [parse_subscription(CONFIG, each) for each in subscriptions]
    return match_client(ONE, FakeConnection(**attributes), parsed, 300_000)


def test_a_client_gets_the_metrics_of_all_that_match_at_the_shortest_interval():
    wanted = matched(
        {"metrics": "b,a", "interval.ms": "5000"},
        {"metrics": "a,c", "interval.ms": "2000", "match": "client_software_version=4\\..*"},
        {"metrics": "d", "interval.ms": "100", "match": "client_source_address=10.0.0.2"},
    )
    assert (wanted.metrics, wanted.interval_ms) == (("a", "b", "c"), 2_000)


def test_a_star_stands_for_all_metrics():
    assert matched({"metrics": "a"}, {"metrics": "*"}).metrics == ("*",)


def test_without_a_match_a_client_asks_again_after_the_default_interval():
    wanted = matched({"metrics": "a", "match": "client_id=other"})
    assert (wanted.metrics, wanted.interval_ms) == ((), 300_000)


@pytest.mark.parametrize(
    "match",
    [
        "client_id=app",
        "client_software_name=apache-kafka-java",
        "client_source_port=5000",
        "client_instance_id=AAAAAAAAAAcAAAAAAAAABQ",
    ],
)
def test_every_attribute_can_be_matched(match):
    assert matched({"metrics": "a", "match": match}).metrics == ("a",)


def test_the_subscription_id_depends_on_metrics_interval_and_client():
    wanted = {"metrics": "a,b", "interval.ms": "1000"}
    same = {"metrics": "b,a", "interval.ms": "1000", "match": "client_id=app"}
    assert matched(wanted) == matched(same)
    others = [matched({**wanted, "metrics": "a"}), matched({**wanted, "interval.ms": "999"})]
    others.append(
        match_client(TWO, FakeConnection(), [parse_subscription(CONFIG, wanted)], 300_000)
    )
    assert matched(wanted).subscription_id not in {each.subscription_id for each in others}
    assert all(-(2**31) <= each.subscription_id < 2**31 for each in others)


def test_who_asks_or_pushes_too_early_is_throttled():
    world = World()
    wanted = world.ask(0)
    with refused(KafkaCode.THROTTLING_QUOTA_EXCEEDED):
        world.ask(999)
    # The first push after a question may come at any time.
    world.push(400, wanted)
    with refused(KafkaCode.THROTTLING_QUOTA_EXCEEDED):
        world.push(1_399, wanted)
    world.push(1_400, wanted)
    with refused(KafkaCode.THROTTLING_QUOTA_EXCEEDED):
        world.ask(2_399)
    world.ask(2_400)
    world.push(2_401, wanted)


def test_the_last_push_may_come_early_and_nothing_after_it():
    world = World()
    wanted = world.ask(0)
    world.push(10, wanted)
    world.push(20, wanted, is_terminating=True)
    with refused(KafkaCode.INVALID_REQUEST):
        world.push(5_000, wanted, is_terminating=True)


def test_a_changed_subscription_is_unknown_and_can_be_asked_for_at_once():
    world = World()
    wanted = world.ask(0)
    world.push(10, wanted)
    world.subscriptions = {"all": {"metrics": "a", "interval.ms": "1000"}}
    with refused(KafkaCode.UNKNOWN_SUBSCRIPTION_ID):
        world.push(1_010, wanted)
    changed = world.ask(1_020)
    assert changed.metrics == ("a",)
    assert changed.subscription_id != wanted.subscription_id
    # Its values stay.
    [client] = world.telemetry.clients(1_020)
    assert client.metrics is not None
    world.push(2_100, changed)


def test_a_push_is_checked():
    world = World()
    wanted = world.ask(0)
    with refused(KafkaCode.UNSUPPORTED_COMPRESSION_TYPE):
        world.push(1, wanted, compression_type=9)
    world.ask(2)
    with refused(KafkaCode.TELEMETRY_TOO_LARGE):
        world.push(2_000, wanted, size_bytes=101)
    for reserved in (UUID(int=0), UUID(int=1)):
        with refused(KafkaCode.INVALID_REQUEST):
            world.push(9_000, wanted, instance_id=reserved)


def test_a_client_that_reconnects_starts_again():
    world = World()
    world.ask(0)
    world.connection.sock.close()
    world.connection = FakeConnection()
    world.ask(10)
    # Another open connection of the same client does not.
    world.connection = FakeConnection()
    with refused(KafkaCode.THROTTLING_QUOTA_EXCEEDED):
        world.ask(20)


def test_a_silent_client_is_forgotten():
    world = World()
    world.push(0, world.ask(0))
    assert len(world.telemetry.clients(60_000)) == 1
    assert world.telemetry.find(ONE, 60_001) is None
    assert world.telemetry.clients(60_001) == []
    slow = World({"s": {"metrics": "*", "interval.ms": "100000"}})
    slow.ask(0)
    assert slow.telemetry.find(ONE, 300_000) is not None
    slow.ask(300_001, TWO)
    assert [each.instance_id for each in slow.telemetry.clients(300_001)] == [TWO]


def test_clients_and_their_values_are_bounded(monkeypatch):
    monkeypatch.setattr(client_telemetry, "_INSTANCES_MAX", 5)
    monkeypatch.setattr(client_telemetry, "_KEPT_BYTES_MAX", 1_000)
    world = World()
    for number in range(10, 20):
        instance_id = UUID(int=number)
        world.push(number, world.ask(number, instance_id), instance_id)
    kept = world.telemetry.clients(20)
    assert [each.instance_id.int for each in kept] == [15, 16, 17, 18, 19]
    # A point takes some four hundred bytes.
    assert [each.metrics is not None for each in kept] == [False, False, False, True, True]


def test_a_connection_is_not_kept_and_its_texts_are_shortened():
    world = World({"all": {"metrics": "*", "match": "client_id=x{1000}"}})
    world.connection.client_id = "x" * 1_000
    world.connection.client_software = "y" * 1_000
    # They are matched whole.
    assert world.ask(0).metrics == ("*",)
    [client] = world.telemetry.clients(0)
    assert client.connection.client_id == "x" * 250
    assert client.connection.client_software == "y" * 250
    assert not client.connection.is_closed
    world.connection.sock.close()
    assert client.connection.is_closed
    kept = weakref.ref(world.connection)
    world.connection = FakeConnection()
    assert kept() is None


def test_who_left_without_a_push_is_forgotten_soon():
    world = World({"s": {"metrics": "*", "interval.ms": "100000"}})
    wanted = world.ask(0, ONE)
    world.ask(0, TWO)
    world.push(0, wanted, ONE)
    world.connection.sock.close()
    assert len(world.telemetry.clients(60_000)) == 2
    assert [each.instance_id for each in world.telemetry.clients(60_001)] == [ONE]


def test_one_client_does_not_push_out_the_others(monkeypatch):
    monkeypatch.setattr(client_telemetry, "_INSTANCES_MAX", 100)
    monkeypatch.setattr(client_telemetry, "_INSTANCES_OF_CLIENT_MAX", 3)
    world = World()
    world.ask(0, ONE)
    world.connection = FakeConnection(client="10.0.0.2")
    for number in range(10, 20):
        world.ask(number, UUID(int=number))
    # Its id counts for the one that it is used by.
    world.connection.sock.close()
    world.connection = FakeConnection(client="10.0.0.3")
    world.ask(20, UUID(int=17))
    world.connection = FakeConnection(client="10.0.0.2")
    world.ask(21, TWO)
    kept = [each.instance_id for each in world.telemetry.clients(30)]
    assert kept == [ONE, UUID(int=18), UUID(int=19), UUID(int=17), TWO]
    assert world.telemetry.clients(100_000) == []
    assert not world.telemetry._ids


@pytest.mark.parametrize("codec", list(Codec))
def test_a_payload_is_read_in_every_codec(codec):
    data = compress(codec, metrics_data(gauge("m", 2.0)))
    assert [each.name for each in read_payload(data, codec, limit_bytes=1_000).points] == ["m"]


@pytest.mark.parametrize("codec", list(Codec))
def test_a_payload_that_unpacks_too_far_is_too_large(codec):
    with refused(KafkaCode.TELEMETRY_TOO_LARGE):
        read_payload(compress(codec, bytes(1 << 20)), codec, limit_bytes=100_000)


@pytest.mark.parametrize("codec", list(Codec))
def test_a_damaged_payload_is_an_invalid_record(codec):
    with refused(KafkaCode.INVALID_RECORD):
        read_payload(b"\x0a\xff\xff damaged", codec, limit_bytes=1_000)
