"""The table against what Kafka itself declares, and how it is read."""

import sys
import tomllib
from pathlib import Path

import pytest

from millstream.config import (
    BROKER_OPTIONS,
    CLIENT_METRICS_OPTIONS,
    GROUP_OPTIONS,
    TOPIC_OPTIONS,
    ConfigError,
    Kind,
    Status,
)
from millstream.config.option import format_value
from millstream.config.table import SECTIONS, find_broker_option, parse_table

# On purpose: see docs/configuration.md.
OUR_OWN_DEFAULTS = {
    "controller.listener.names",
    "listeners",
    "log.dir",
    "node.id",
    "process.roles",
    "queued.max.request.bytes",
    "eligible.leader.replicas.enable",
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


@pytest.mark.parametrize(
    "options", [BROKER_OPTIONS, TOPIC_OPTIONS, GROUP_OPTIONS, CLIENT_METRICS_OPTIONS]
)
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


SMALL_TABLE = """\
# A comment.
reason later = it is not built yet

[broker] The node
log.keep.ms -> log.keep.hours | long | | -1.. | works, dynamic
    How long to keep.
log.keep.hours | int | 2 | -1.. | works
    The same in hours.
codec | string | none | none, gzip, "" | no effect
    The codec.
share | double | max | 0.0..1.5 | refused: later
    The share
    of it all.

[topic] Topics
keep.ms -> log.keep.ms
codec -> codec | | gzip | | works
    The topic's codec.
names | list | "" | | works
    Names.
"""


def test_a_row_says_everything_about_an_option():
    node, topics = parse_table(SMALL_TABLE)
    keep, hours, codec, share = node.options
    assert (node.scope, node.title) == ("broker", "The node")
    assert (keep.kind, keep.default, keep.doc) == (Kind.LONG, None, "How long to keep.")
    assert (keep.minimum, keep.maximum, keep.synonyms) == (-1, None, ("log.keep.hours",))
    assert (keep.is_dynamic, hours.is_dynamic, hours.default) == (True, False, 2)
    assert (codec.status, codec.choices) == (Status.NO_EFFECT, ("none", "gzip", ""))
    assert (share.status, share.reason) == (Status.REFUSED, "it is not built yet")
    assert (share.default, share.minimum, share.maximum) == (sys.float_info.max, 0.0, 1.5)
    assert share.doc == "The share of it all."
    assert topics.options[2].default == ()


def test_a_topic_inherits_what_its_row_leaves_out():
    node, topics = parse_table(SMALL_TABLE)
    keep, codec, _ = topics.options
    assert (keep.kind, keep.minimum, keep.status) == (Kind.LONG, -1, Status.WORKS)
    assert keep.doc == "How long to keep."
    # The node's default stands in hours.
    assert keep.default == 2 * 3_600_000
    assert (codec.kind, codec.choices) == (Kind.STRING, node.options[2].choices)
    assert (codec.default, codec.status, codec.doc) == ("gzip", Status.WORKS, "The topic's codec.")


@pytest.mark.parametrize(
    "row",
    [
        "a | integer | 1 | | works",
        "a | int | one | | works",
        "a | int | 1 | | perhaps",
        "a | int | 1 | x.. | works",
        "a | int | 1 | | refused: unheard-of",
        "a | int | 1",
        "a | int | 1 | | works | more",
    ],
)
def test_a_row_that_cannot_be_read_is_named(row):
    with pytest.raises(ValueError, match=r"a \| int"):
        parse_table(f"[broker] The node\n{row}\n")


def test_the_table_is_part_of_the_package():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    data = project["tool"]["setuptools"]["package-data"]["millstream"]
    assert "config/options.txt" in data


def test_every_name_is_there_once():
    for scope in ("broker", "topic", "group", "client-metrics"):
        names = [
            option.name
            for section in SECTIONS
            if section.scope == scope
            for option in section.options
        ]
        assert len(names) == len(set(names))


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
