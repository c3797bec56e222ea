import pytest

from millstream.config import (
    ClientMetricsConfig,
    Source,
    check_client_metrics,
    load_config,
    parse_subscription,
)
from millstream.config.client_metrics_config import CLIENT_ID, CLIENT_SOURCE_PORT
from millstream.errors import KafkaCode, KafkaError


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("no.such", "1", KafkaCode.INVALID_REQUEST),
        ("interval.ms", "99", KafkaCode.INVALID_REQUEST),
        ("interval.ms", "3600001", KafkaCode.INVALID_REQUEST),
        ("interval.ms", "soon", KafkaCode.INVALID_CONFIG),
        ("match", "client_id", KafkaCode.INVALID_CONFIG),
        ("match", "client_id=", KafkaCode.INVALID_CONFIG),
        ("match", "client_id=a=b", KafkaCode.INVALID_CONFIG),
        ("match", "=a", KafkaCode.INVALID_CONFIG),
        ("match", "client_colour=red", KafkaCode.INVALID_CONFIG),
        ("match", "client_id=a,", KafkaCode.INVALID_CONFIG),
        ("match", "client_id=(", KafkaCode.INVALID_CONFIG),
        ("match", "client_id=" + "a" * 2_000, KafkaCode.INVALID_CONFIG),
    ],
)
def test_what_kafka_refuses_is_refused_with_its_code(name, value, code):
    with pytest.raises(KafkaError) as caught:
        check_client_metrics({name: value})
    assert caught.value.code is code
    assert name in str(caught.value.message) or "client matching" in str(caught.value.message)


def test_what_kafka_accepts_is_accepted():
    check_client_metrics({})
    check_client_metrics({"metrics": "", "interval.ms": "100", "match": ""})
    check_client_metrics({"metrics": "*", "match": "client_id = a.* , client_source_port=9\\d+"})


def test_all_patterns_match_whole_values():
    wanted = {"match": "client_id = a.* , client_source_port=9\\d"}
    subscription = parse_subscription(load_config(), wanted)
    assert subscription.matches({CLIENT_ID: "abc", CLIENT_SOURCE_PORT: "92"})
    assert not subscription.matches({CLIENT_ID: "abc", CLIENT_SOURCE_PORT: "921"})
    assert not subscription.matches({CLIENT_ID: "xabc", CLIENT_SOURCE_PORT: "92"})
    assert parse_subscription(load_config(), {}).matches({CLIENT_ID: "anything"})


def test_what_is_not_set_has_the_default():
    config = ClientMetricsConfig(load_config(), {"metrics": "a,b"})
    assert config.list("metrics") == ("a", "b")
    assert config.int("interval.ms") == 300_000
    assert config.describe("metrics").source is Source.DYNAMIC_CLIENT_METRICS
    assert config.describe("interval.ms").source is Source.DEFAULT


def test_names_that_a_newer_release_stored_are_ignored():
    assert parse_subscription(load_config(), {"colour": "red", "metrics": "a"}).metrics == ("a",)
