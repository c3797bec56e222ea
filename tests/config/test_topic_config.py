import pytest

from millstream.config import (
    TOPIC_OPTIONS,
    Source,
    Synonym,
    load_config,
    topic_config,
    topic_config_problem,
    topic_overrides_problem,
)


def test_a_topic_falls_back_on_the_node():
    node = load_config(sets=["log.retention.minutes=1", "message.max.bytes=500"])
    topic = topic_config(node, {"segment.bytes": "10000"})
    assert topic.int("segment.bytes") == 10_000
    assert topic.int("retention.ms") == 60_000
    assert topic.int("max.message.bytes") == 500
    assert topic.list("cleanup.policy") == ("delete",)
    assert topic.float("min.cleanable.dirty.ratio") == 0.5
    assert topic.boolean("preallocate") is False
    assert topic.string("compression.type") == "producer"


def test_a_topic_sees_what_the_node_changes_at_run_time():
    node = load_config().with_dynamic({"log.retention.ms": "77"})
    assert topic_config(node, {}).int("retention.ms") == 77


def test_describe_lists_the_topics_value_before_the_nodes():
    node = load_config(sets=["log.retention.ms=5"])
    described = topic_config(node, {"retention.ms": "3"}).describe("retention.ms")
    assert (described.value, described.source) == ("3", Source.DYNAMIC_TOPIC)
    assert described.synonyms == (
        Synonym("retention.ms", "3", Source.DYNAMIC_TOPIC),
        Synonym("log.retention.ms", "5", Source.STATIC_BROKER),
        Synonym("log.retention.hours", "168", Source.DEFAULT),
    )
    described = topic_config(load_config(), {}).describe("retention.ms")
    assert (described.value, described.source) == ("604800000", Source.DEFAULT)


def test_every_option_can_be_described():
    topic = topic_config(load_config(), {})
    for name, option in TOPIC_OPTIONS.items():
        described = topic.describe(name)
        assert described.is_default, name
        assert not described.is_read_only, name
        assert (described.value is None) == (option.default is None), name


def test_kafka_3s_bound_on_timestamps_sets_both_newer_ones():
    topic = topic_config(
        load_config(),
        {"message.timestamp.difference.max.ms": "9", "message.timestamp.after.max.ms": "4"},
    )
    assert topic.int("message.timestamp.before.max.ms") == 9
    assert topic.int("message.timestamp.after.max.ms") == 4


def test_the_internal_segment_size_goes_first():
    topic = topic_config(
        load_config(), {"internal.segment.bytes": "10000", "segment.bytes": "50000"}
    )
    assert topic.int("segment.bytes") == 10_000


@pytest.mark.parametrize("name", ["segment.bytes", "internal.segment.bytes"])
def test_segments_are_not_tiny(name):
    assert topic_config_problem(name, "10000") is None
    assert topic_config_problem(name, "9999") == f"{name}: 9999 is less than 10000"


def test_unknown_stored_names_are_left_alone():
    topic = topic_config(load_config(), {"from.a.newer.release": "1", "retention.ms": "2"})
    assert topic.int("retention.ms") == 2
    assert "from.a.newer.release" in topic.overrides


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("retention.ms", "-1", None),
        ("cleanup.policy", "compact,delete", None),
        ("retention.ms", "-2", "less than"),
        ("retention.ms", "long", "whole number"),
        ("retention.ms", None, "no value"),
        ("retention.mss", "1", "retention.ms"),
        ("compression.type", "brotli", "zstd"),
        ("remote.storage.enable", "true", "tiered"),
        ("remote.storage.enable", "false", None),
    ],
)
def test_settings_of_topics_are_checked(name, value, problem):
    found = topic_config_problem(name, value)
    assert found is None if problem is None else problem in found


def test_settings_are_checked_together():
    overrides = {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}
    assert "more than" in topic_overrides_problem(load_config(), overrides)
    assert topic_overrides_problem(load_config(), {"retention.ms": "1"}) is None
    assert "nearest" not in topic_overrides_problem(load_config(), {"retention": "1"})
