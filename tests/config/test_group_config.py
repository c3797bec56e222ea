"""What a group may set, within the node's bounds."""

import pytest

from millstream.config import BrokerConfig, group_overrides_problem, load_config


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("streams.session.timeout.ms", "45000", None),
        ("streams.session.timeout.ms", "44999", "group.streams.min.session.timeout.ms"),
        ("streams.session.timeout.ms", "60001", "group.streams.max.session.timeout.ms"),
        ("streams.heartbeat.interval.ms", "4999", "group.streams.min.heartbeat.interval.ms"),
        ("streams.assignment.interval.ms", "15001", "group.streams.max.assignment.interval.ms"),
        ("streams.num.standby.replicas", "2", None),
        ("streams.num.standby.replicas", "3", "group.streams.max.standby.replicas"),
        ("streams.num.standby.replicas", "-1", "-1"),
        ("streams.initial.rebalance.delay.ms", "0", None),
        ("consumer.session.timeout.ms", "1", "group.consumer.min.session.timeout.ms"),
        ("no.such", "1", "Unknown group config name"),
    ],
)
def test_a_value_must_be_within_the_nodes_bounds(
    name: str, value: str, problem: str | None
) -> None:
    found = group_overrides_problem(BrokerConfig({}), {name: value})
    if problem is None:
        assert found is None
    else:
        assert found is not None
        assert problem in found


def test_a_session_outlives_its_heartbeats() -> None:
    node = load_config(sets=["group.streams.min.session.timeout.ms=1000"])
    found = group_overrides_problem(node, {"streams.session.timeout.ms": "5000"})
    assert found == "streams.session.timeout.ms must be greater than streams.heartbeat.interval.ms"
