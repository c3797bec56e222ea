import pytest

from millstream.config import Source, Synonym, broker_config_problem, load_config


def test_a_value_in_hours_is_read_in_milliseconds():
    config = load_config(sets=["log.retention.hours=2"])
    assert config.int("log.retention.ms") == 7_200_000
    assert config.int("log.roll.ms") == 168 * 3_600_000
    assert load_config(sets=["log.retention.hours=-1"]).int("log.retention.ms") == -1


def test_the_older_bound_on_timestamps_sets_both_newer_ones():
    config = load_config(sets=["log.message.timestamp.difference.max.ms=9"])
    assert config.int("log.message.timestamp.before.max.ms") == 9
    assert config.int("log.message.timestamp.after.max.ms") == 9
    assert load_config().int("log.message.timestamp.after.max.ms") == 3_600_000


def test_an_empty_text_counts_as_not_set():
    assert load_config(sets=["broker.rack="]).optional_string("broker.rack") is None
    assert load_config(sets=["broker.rack=r1"]).optional_string("broker.rack") == "r1"


def test_run_time_values_go_before_those_of_the_start():
    started = load_config(sets=["log.retention.ms=1", "message.max.bytes=11"])
    config = started.with_dynamic({"log.retention.ms": "3"}, {"log.retention.ms": "2"})
    assert config.int("log.retention.ms") == 3
    assert config.source("log.retention.ms") is Source.DYNAMIC_BROKER
    assert config.int("message.max.bytes") == 11
    assert started.int("log.retention.ms") == 1
    assert config.with_dynamic({}, {"log.retention.ms": "2"}).int("log.retention.ms") == 2
    assert config.with_dynamic({}).int("log.retention.ms") == 1


def test_describe_tells_every_value_that_was_considered():
    config = load_config(sets=["log.retention.hours=2"]).with_dynamic({"log.retention.ms": "3"})
    described = config.describe("log.retention.ms")
    assert (described.value, described.source) == ("3", Source.DYNAMIC_BROKER)
    assert described.synonyms == (
        Synonym("log.retention.ms", "3", Source.DYNAMIC_BROKER),
        Synonym("log.retention.hours", "2", Source.STATIC_BROKER),
        Synonym("log.retention.hours", "168", Source.DEFAULT),
    )
    assert not described.is_read_only
    assert config.describe("num.partitions").is_read_only
    assert config.describe("num.partitions").is_default


def test_describe_keeps_secrets():
    config = load_config(sets=["password.encoder.secret=abc"])
    described = config.describe("password.encoder.secret")
    assert described.value is None
    assert [synonym.value for synonym in described.synonyms] == [None]


def test_stored_names_that_no_longer_work_do_not_stop_a_start():
    config = load_config().with_dynamic({"no.such": "1", "node.id": "9", "log.retention.ms": "x"})
    assert config.int("node.id") == 1
    assert config.source("log.retention.ms") is Source.DEFAULT


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("log.retention.ms", "5", None),
        ("log.retention.ms", None, None),
        ("log.retention.ms", "0", "delete everything"),
        ("log.retention.ms", "x", "whole number"),
        ("num.partitions", "5", "while the node runs"),
        ("listener.name.a.max.connections", "5", "while the node runs"),
        ("rsm.config.x", "5", "while the node runs"),
        ("listener.name.a.ssl.keystore.location", "/key.pem", None),
        ("listener.name.a.ssl.client.auth", "none", "while the node runs"),
        ("ssl.keystore.location", "/key.pem", "listener.name.<listener>.ssl.keystore.location"),
        ("no.such.option", "5", "no option"),
    ],
)
def test_only_some_options_change_while_the_node_runs(name, text, problem):
    found = broker_config_problem(name, text)
    assert found is None if problem is None else problem in found


def test_a_nodes_own_value_of_what_a_cluster_has_once_is_ignored():
    name = "min.insync.replicas"
    assert load_config().with_dynamic({name: "3"}, {name: "2"}).int(name) == 2


def test_a_listener_has_its_own_options_before_those_of_the_node():
    config = load_config(
        sets=[
            "ssl.keystore.location=/node.pem",
            "ssl.client.auth=requested",
            "listener.name.inside.ssl.keystore.location=/inside.pem",
            "listener.name.inside.sasl.enabled.mechanisms=GSSAPI",
        ]
    )
    inside, outside = config.for_listener("INSIDE"), config.for_listener("OUTSIDE")
    assert inside.string("ssl.keystore.location") == "/inside.pem"
    assert outside.string("ssl.keystore.location") == "/node.pem"
    assert inside.string("ssl.client.auth") == "requested"
    assert config.string("ssl.keystore.location") == "/node.pem"


def test_a_listeners_option_changes_at_run_time():
    name = "listener.name.inside.ssl.keystore.location"
    config = load_config(sets=[f"{name}=/old.pem"])
    changed = config.with_dynamic({name: "/new.pem"})
    assert changed.for_listener("INSIDE").string("ssl.keystore.location") == "/new.pem"
    assert changed.with_dynamic({}).for_listener("INSIDE").string("ssl.keystore.location") == (
        "/old.pem"
    )


def test_a_mechanism_of_a_listener_has_its_own_options_first():
    config = load_config(
        sets=["listener.name.a.ssl.protocol=TLSv1.3", "listener.name.a.plain.ssl.protocol=TLSv1.2"]
    )
    assert config.for_listener("A", "PLAIN").string("ssl.protocol") == "TLSv1.2"
    assert config.for_listener("A", "SCRAM-SHA-256").string("ssl.protocol") == "TLSv1.3"


def test_a_listeners_option_is_described_with_the_nodes_as_its_fallback():
    name = "listener.name.inside.ssl.keystore.location"
    config = load_config(sets=[f"{name}=/inside.pem", "ssl.keystore.location=/node.pem"])
    assert config.names_for_listeners() == [name]
    described = config.describe(name)
    assert (described.name, described.value) == (name, "/inside.pem")
    assert [(each.name, each.value) for each in described.synonyms] == [
        (name, "/inside.pem"),
        ("ssl.keystore.location", "/node.pem"),
    ]
    secret = load_config(sets=["listener.name.inside.ssl.key.password=secret"])
    described = secret.describe("listener.name.inside.ssl.key.password")
    assert described.value is None
    assert [each.value for each in described.synonyms] == [None]
