"""A topic's effective options, and what a topic may set."""

from collections.abc import Mapping

from millstream.config.broker_config import BrokerConfig
from millstream.config.option import Status, Value, parse_value
from millstream.config.overrides import OverridingConfig
from millstream.config.table import TOPIC_OPTIONS, unknown_name
from millstream.config.values import Source
from millstream.errors import ConfigError


class TopicConfig(OverridingConfig):
    """Typed values by topic option name."""

    __slots__ = ()

    options = TOPIC_OPTIONS
    source = Source.DYNAMIC_TOPIC

    def __init__(self, broker: BrokerConfig, overrides: Mapping[str, str]) -> None:
        super().__init__(broker, overrides, _effective_overrides(overrides))


def topic_config(broker: BrokerConfig, overrides: Mapping[str, str]) -> TopicConfig:
    return TopicConfig(broker, overrides)


def topic_config_problem(name: str, value: str | None) -> str | None:
    """Why a topic cannot have this setting, or None if it can."""
    option = TOPIC_OPTIONS.get(name)
    if option is None:
        return unknown_name(name, TOPIC_OPTIONS)
    if value is None:
        return f"{name}: no value is given"
    try:
        typed = parse_value(option, value)
    except ConfigError as problem:
        return str(problem)
    if option.status is Status.REFUSED and typed != option.default:
        return f"{name}: {option.status_text}"
    return None


def topic_overrides_problem(broker: BrokerConfig, overrides: Mapping[str, str]) -> str | None:
    """The first thing wrong with a topic's settings, each alone and all together."""
    for name, value in overrides.items():
        problem = topic_config_problem(name, value)
        if problem is not None:
            return problem
    topic = topic_config(broker, overrides)
    least, most = topic.int("min.compaction.lag.ms"), topic.int("max.compaction.lag.ms")
    if least > most:
        return f"min.compaction.lag.ms {least} is more than max.compaction.lag.ms {most}"
    return None


def _effective_overrides(overrides: Mapping[str, str]) -> dict[str, Value]:
    """Typed; unknown names are left out, they may come from a newer release's data."""
    typed = {
        name: parse_value(TOPIC_OPTIONS[name], text)
        for name, text in overrides.items()
        if topic_config_problem(name, text) is None
    }
    difference_ms = typed.get("message.timestamp.difference.max.ms")
    if difference_ms is not None:
        typed.setdefault("message.timestamp.before.max.ms", difference_ms)
        typed.setdefault("message.timestamp.after.max.ms", difference_ms)
    segment_bytes = typed.get("internal.segment.bytes")
    if segment_bytes is not None:
        typed["segment.bytes"] = segment_bytes
    return typed
