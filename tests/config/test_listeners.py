import socket

import pytest

from millstream.config import (
    ConfigError,
    insecure_listeners,
    inter_broker_listener,
    load_config,
    parse_listeners,
)
from millstream.config.broker_config import BrokerConfig
from millstream.config.listeners import Listener


def listeners(*sets: str, **flags: str) -> list[Listener]:
    return parse_listeners(load_config(sets=sets, flags=flags))


def test_the_default_is_loopback():
    (only,) = listeners()
    assert (only.name, only.host, only.port) == ("PLAINTEXT", "127.0.0.1", 9092)
    assert (only.advertised_host, only.advertised_port) == ("127.0.0.1", 9092)


def test_an_empty_host_listens_everywhere_and_tells_the_machines_name():
    (only,) = listeners("listeners=PLAINTEXT://:9092")
    assert only.host == ""
    assert only.advertised_host == socket.gethostname()


def test_each_listener_has_its_own_advertised_address():
    inside, outside = listeners(
        "listeners=INSIDE://10.0.0.1:9092,OUTSIDE://:9094",
        "advertised.listeners=OUTSIDE://example.org:19094",
        "listener.security.protocol.map=INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
    )
    assert (inside.advertised_host, inside.advertised_port) == ("10.0.0.1", 9092)
    assert (outside.port, outside.advertised_host) == (9094, "example.org")
    assert outside.advertised_port == 19094


def test_an_address_of_ipv6_is_written_in_brackets():
    (only,) = listeners("listeners=PLAINTEXT://[::1]:9092")
    assert (only.host, only.port) == ("::1", 9092)


def test_a_bare_address_is_a_plaintext_listener():
    (only,) = listeners(listeners="127.0.0.1:0")
    assert (only.name, only.port, only.advertised_port) == ("PLAINTEXT", 0, 0)


def test_a_flag_leaves_the_files_other_advertised_names_behind():
    config = load_config(
        sets=["advertised.listeners=OUTSIDE://example.org:1"], flags={"listeners": "127.0.0.1:0"}
    )
    assert [listener.advertised_host for listener in parse_listeners(config)] == ["127.0.0.1"]


def test_listeners_of_the_controller_quorum_are_not_opened():
    found = listeners(
        "listeners=PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2",
        "controller.listener.names=CONTROLLER",
    )
    assert [listener.name for listener in found] == ["PLAINTEXT"]


def test_the_listener_between_nodes_is_the_named_one_else_the_first():
    sets = [
        "listeners=A://h:1,B://h:2",
        "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT",
    ]
    config = load_config(sets=sets)
    assert inter_broker_listener(config, parse_listeners(config)).name == "A"
    config = load_config(sets=[*sets, "inter.broker.listener.name=b"])
    assert inter_broker_listener(config, parse_listeners(config)).name == "B"


def test_the_protocol_between_nodes_chooses_the_listener_that_has_it():
    config = load_config(
        sets=["listeners=PLAINTEXT://h:1,SSL://h:2", "security.inter.broker.protocol=SSL"]
    )
    assert inter_broker_listener(config, parse_listeners(config)).name == "SSL"


def test_each_listener_says_what_it_speaks():
    found = listeners("listeners=PLAINTEXT://h:1,SSL://h:2,SASL_PLAINTEXT://h:3,SASL_SSL://h:4")
    assert [(each.uses_tls, each.uses_sasl) for each in found] == [
        (False, False),
        (True, False),
        (False, True),
        (True, True),
    ]


@pytest.mark.parametrize(
    ("listener", "is_refused"),
    [
        ("PLAINTEXT://127.0.0.1:1", False),
        ("PLAINTEXT://[::1]:1", False),
        ("PLAINTEXT://localhost:1", False),
        ("PLAINTEXT://:1", True),
        ("PLAINTEXT://0.0.0.0:1", True),
        ("PLAINTEXT://10.0.0.1:1", True),
        ("PLAINTEXT://some.host:1", True),
        ("SASL_PLAINTEXT://some.host:1", True),
        ("SSL://:1", False),
        ("SASL_SSL://some.host:1", False),
    ],
)
def test_what_others_could_listen_in_on_must_be_allowed(listener, is_refused):
    setting = f"listeners={listener}"
    if is_refused:
        with pytest.raises(ConfigError, match=r"allow\.insecure\.listeners=true"):
            insecure_listeners(load_config(sets=[setting]), listeners(setting))
    allowing = load_config(sets=[setting, "allow.insecure.listeners=true"])
    assert bool(insecure_listeners(allowing, listeners(setting))) is is_refused


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (["listeners=PLAINTEXT://host"], "NAME://HOST:PORT"),
        (["listeners=PLAINTEXT://host:70000"], "NAME://HOST:PORT"),
        (["listeners="], "none that clients"),
        (["listeners=A://h:1"], "no protocol for A"),
        (["security.inter.broker.protocol=SSL"], "no listener has SSL"),
        (["listeners=PLAINTEXT://h:1,PLAINTEXT://h:2"], "twice"),
        (["advertised.listeners=PLAINTEXT://0.0.0.0:1"], "cannot connect"),
        (["advertised.listeners=OTHER://h:1"], "not one of the listeners"),
        (["listener.security.protocol.map=PLAINTEXT"], "NAME:PROTOCOL"),
        (["controller.listener.names=PLAINTEXT"], "none that clients"),
    ],
)
def test_what_cannot_be_listened_on_is_refused(sets, message):
    with pytest.raises(ConfigError, match=message):
        load_config(sets=sets)


def test_a_config_without_settings_can_be_used_at_once():
    assert parse_listeners(BrokerConfig({}))[0].port == 9092
