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
        ("no.such.option", "5", "no option"),
    ],
)
def test_only_some_options_change_while_the_node_runs(name, text, problem):
    found = broker_config_problem(name, text)
    assert found is None if problem is None else problem in found
