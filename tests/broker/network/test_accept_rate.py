"""Beyond a rate, connections wait; and the options for that change at run time."""

import socket
import time

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from millstream.broker.network.accept_rate import AcceptRate, AcceptRates
from millstream.wire.apis.metadata import MetadataRequest
from tests.support.broker import Broker
from tests.support.raw_client import RawClient

OPTION = "max.connection.creation.rate"


def rate_of(rates: AcceptRates) -> AcceptRate:
    rate = AcceptRate(window_count=2, window_seconds=1)
    rate.rates = rates
    return rate


def test_without_a_limit_nothing_waits() -> None:
    rate = rate_of(AcceptRates())
    assert [rate.count("A", 0.0) for _ in range(1000)] == [0.0] * 1000


def test_beyond_the_rate_a_listener_waits_until_the_average_is_right() -> None:
    rate = rate_of(AcceptRates(by_listener={"A": 2}))
    assert [rate.count("A", 0.0) for _ in range(4)] == [0.0, 0.0, 0.5, 1.0]
    assert rate.count("B", 0.0) == 0.0
    assert rate.count("A", 10.0) == 0.0


def test_all_listeners_share_the_nodes_rate_except_that_of_nodes() -> None:
    rate = rate_of(AcceptRates(node=2, listener_of_nodes="INSIDE"))
    assert [rate.count(name, 0.0) for name in ("A", "B", "A")] == [0.0, 0.0, 0.5]
    assert rate.count("INSIDE", 0.0) == 0.0


def test_the_listener_of_nodes_may_have_its_own() -> None:
    rate = rate_of(AcceptRates(node=2, by_listener={"INSIDE": 1}, listener_of_nodes="INSIDE"))
    assert [rate.count("INSIDE", 0.0) for _ in range(2)] == [0.0, 1.0]


def test_a_rate_of_nothing_waits_no_longer_than_the_windows() -> None:
    assert 0 < rate_of(AcceptRates(node=0)).count("A", 0.0) <= 2


def connect_and_ask(broker: Broker, count: int) -> float:
    """The seconds until all of them had an answer."""
    began = time.monotonic()
    for _ in range(count):
        with RawClient(broker.bootstrap, timeout_seconds=30) as client:
            client.ask(MetadataRequest(topics=[]), 9)
    return time.monotonic() - began


def set_options(broker: Broker, **options: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    entries = [
        ConfigEntry(name.replace("__", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in options.items()
    ]
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=entries)
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(30)


def test_a_node_accepts_connections_at_its_rate_and_refuses_none() -> None:
    with Broker(settings={"quota.window.num": "2", OPTION: "4"}) as broker:
        # Four at once, then four a second.
        assert connect_and_ask(broker, 12) > 1


def test_a_listeners_rate_is_set_and_raised_at_run_time() -> None:
    with Broker(settings={"quota.window.num": "2"}) as broker:
        set_options(broker, listener__name__plaintext__max__connection__creation__rate="4")
        assert connect_and_ask(broker, 12) > 1
        set_options(broker, listener__name__plaintext__max__connection__creation__rate="10000")
        # At four a second it would take fifteen.
        assert connect_and_ask(broker, 60) < 12


def test_the_number_of_connections_is_limited_at_run_time() -> None:
    with Broker() as broker, RawClient(broker.bootstrap) as client:
        set_options(broker, max__connections="1")
        # The administrator's own connections may not be closed yet.
        client.ask(MetadataRequest(topics=[]), 9)
        host, _, port = broker.bootstrap.rpartition(":")
        with socket.create_connection((host, int(port)), 10) as refused:
            assert refused.recv(1) == b""
