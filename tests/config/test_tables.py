"""The tables against what Kafka itself declares."""

from pathlib import Path

import pytest

from millstream.config import (
    BROKER_OPTIONS,
    GROUP_OPTIONS,
    TOPIC_OPTIONS,
    ConfigError,
    Kind,
    Status,
)
from millstream.config.option import format_value
from millstream.config.tables import find_broker_option

# On purpose: see docs/configuration.md.
OUR_OWN_DEFAULTS = {
    "controller.listener.names",
    "listeners",
    "log.dir",
    "node.id",
    "process.roles",
    "queued.max.request.bytes",
}
ROWS = [
    line.split("\t")
    for line in (Path(__file__).parent / "kafka_options.tsv").read_text().splitlines()
    if not line.startswith("#")
]


def table(level):
    return {"broker": BROKER_OPTIONS, "topic": TOPIC_OPTIONS}[level]


def test_every_option_of_kafka_is_in_the_table_with_its_type():
    for level, name, kind, _ in ROWS:
        assert table(level)[name].kind is Kind[kind], name


def test_defaults_are_those_of_kafka_except_where_we_say_so():
    for level, name, kind, default in ROWS:
        if name in OUR_OWN_DEFAULTS:
            continue
        ours = format_value(table(level)[name].default)
        if kind == "LIST" and default != "null":
            default = default.strip("[]").replace(", ", ",")
        if kind == "DOUBLE":
            assert float(ours) == float(default), name
        else:
            assert (ours if ours is not None else "null") == default, name


@pytest.mark.parametrize("options", [BROKER_OPTIONS, TOPIC_OPTIONS, GROUP_OPTIONS])
def test_each_row_is_complete_and_keeps_its_own_bounds(options):
    for option in options.values():
        assert option.doc.endswith("."), option.name
        assert (option.status is Status.REFUSED) == bool(option.reason), option.name
        if option.minimum is not None and isinstance(option.default, int):
            assert option.default >= option.minimum, option.name
        if option.maximum is not None and isinstance(option.default, int):
            assert option.default <= option.maximum, option.name


def test_synonyms_name_options_of_the_node():
    for options in (BROKER_OPTIONS, TOPIC_OPTIONS, GROUP_OPTIONS):
        for option in options.values():
            assert all(name in BROKER_OPTIONS for name in option.synonyms), option.name


@pytest.mark.parametrize("options", [TOPIC_OPTIONS, GROUP_OPTIONS])
def test_defaults_agree_with_those_of_the_node(options):
    for option in options.values():
        for name in option.synonyms:
            node = BROKER_OPTIONS[name]
            assert node.default in (None, option.default), name
            assert (node.status, node.kind) == (option.status, option.kind), name


def test_an_unknown_name_is_an_error_that_names_the_nearest():
    with pytest.raises(ConfigError, match=r"log\.retention\.hours"):
        find_broker_option("log.retention.hour")


def test_a_listener_prefix_leads_to_the_option_it_is_for():
    found = find_broker_option("listener.name.internal.ssl.keystore.location")
    assert found is BROKER_OPTIONS["ssl.keystore.location"]
    found = find_broker_option("listener.name.internal.plain.sasl.jaas.config")
    assert found is BROKER_OPTIONS["sasl.jaas.config"]
    with pytest.raises(ConfigError):
        find_broker_option("listener.name.internal.nonsense")


def test_options_of_plug_ins_have_no_row_and_are_no_error():
    assert find_broker_option("rsm.config.bucket") is None
