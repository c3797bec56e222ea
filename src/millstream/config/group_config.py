"""A group's effective options, and what a group may set."""

from collections.abc import Mapping
from typing import Final

from millstream.config.broker_config import BrokerConfig
from millstream.config.durations import iso_duration_ms
from millstream.config.option import parse_value
from millstream.config.overrides import OverridingConfig, typed_overrides
from millstream.config.table import GROUP_OPTIONS
from millstream.config.values import Source
from millstream.errors import ConfigError

# The node's options between which a group may choose.
_BOUNDS: Final = {
    "consumer.session.timeout.ms": (
        "group.consumer.min.session.timeout.ms",
        "group.consumer.max.session.timeout.ms",
    ),
    "consumer.heartbeat.interval.ms": (
        "group.consumer.min.heartbeat.interval.ms",
        "group.consumer.max.heartbeat.interval.ms",
    ),
    "consumer.assignment.interval.ms": (
        "group.consumer.min.assignment.interval.ms",
        "group.consumer.max.assignment.interval.ms",
    ),
    "share.session.timeout.ms": (
        "group.share.min.session.timeout.ms",
        "group.share.max.session.timeout.ms",
    ),
    "share.heartbeat.interval.ms": (
        "group.share.min.heartbeat.interval.ms",
        "group.share.max.heartbeat.interval.ms",
    ),
    "share.assignment.interval.ms": (
        "group.share.min.assignment.interval.ms",
        "group.share.max.assignment.interval.ms",
    ),
    "share.record.lock.duration.ms": (
        "group.share.min.record.lock.duration.ms",
        "group.share.max.record.lock.duration.ms",
    ),
    "share.delivery.count.limit": (
        "group.share.min.delivery.count.limit",
        "group.share.max.delivery.count.limit",
    ),
    "share.partition.max.record.locks": (
        "group.share.min.partition.max.record.locks",
        "group.share.max.partition.max.record.locks",
    ),
    "streams.session.timeout.ms": (
        "group.streams.min.session.timeout.ms",
        "group.streams.max.session.timeout.ms",
    ),
    "streams.heartbeat.interval.ms": (
        "group.streams.min.heartbeat.interval.ms",
        "group.streams.max.heartbeat.interval.ms",
    ),
    "streams.assignment.interval.ms": (
        "group.streams.min.assignment.interval.ms",
        "group.streams.max.assignment.interval.ms",
    ),
}
# Options that only have a largest value.
_LIMITS: Final = {"streams.num.standby.replicas": "group.streams.max.standby.replicas"}
# A session has to outlive its heartbeats.
_SESSIONS: Final = {
    "consumer.session.timeout.ms": "consumer.heartbeat.interval.ms",
    "share.session.timeout.ms": "share.heartbeat.interval.ms",
    "streams.session.timeout.ms": "streams.heartbeat.interval.ms",
}
_RESET: Final = "share.auto.offset.reset"
_BY_DURATION: Final = "by_duration:"
_DEAD_LETTERS: Final = "errors.deadletterqueue.topic.name"


class GroupConfig(OverridingConfig):
    """Typed values by group option name."""

    __slots__ = ()

    options = GROUP_OPTIONS
    source = Source.DYNAMIC_GROUP

    def __init__(self, broker: BrokerConfig, overrides: Mapping[str, str]) -> None:
        super().__init__(broker, overrides, typed_overrides(GROUP_OPTIONS, overrides))


def group_overrides_problem(broker: BrokerConfig, overrides: Mapping[str, str]) -> str | None:
    """The first thing wrong with a group's settings, each alone and all together."""
    for name, text in overrides.items():
        option = GROUP_OPTIONS.get(name)
        if option is None:
            return f"Unknown group config name: {name}"
        try:
            value = parse_value(option, text)
        except ConfigError as problem:
            return str(problem)
        if name == _RESET and not _is_reset_rule(text.strip()):
            return f"{name} must be latest, earliest or by_duration:<a duration such as PT1H>"
        if name == _DEAD_LETTERS and text.strip().startswith("__"):
            return f"{name} must not start with __: such topics are internal"
        if name in _BOUNDS:
            assert isinstance(value, int), name
            least, most = _BOUNDS[name]
            if value < broker.int(least):
                return f"{name} must be greater than or equal to {least}"
            if value > broker.int(most):
                return f"{name} must be less than or equal to {most}"
        limit = _LIMITS.get(name)
        if limit is not None and isinstance(value, int) and value > broker.int(limit):
            return f"{name} must be less than or equal to {limit}"
    group = GroupConfig(broker, overrides)
    for session, heartbeat in _SESSIONS.items():
        touches_both = session in overrides or heartbeat in overrides
        if touches_both and group.int(session) <= group.int(heartbeat):
            return f"{session} must be greater than {heartbeat}"
    return None


def _is_reset_rule(text: str) -> bool:
    if not text.startswith(_BY_DURATION):
        return text in ("latest", "earliest")
    try:
        iso_duration_ms(text.removeprefix(_BY_DURATION))
    except ValueError:
        return False
    return True
