"""A topic's effective options: its own, else the node's under the node's names."""

from collections.abc import Mapping

from millstream.config.broker_config import BrokerConfig
from millstream.config.option import (
    ConfigError,
    Described,
    Source,
    Status,
    Synonym,
    Value,
    format_value,
    parse_value,
)
from millstream.config.tables import TOPIC_OPTIONS, unknown_name
from millstream.config.typed_values import TypedValues


class TopicConfig(TypedValues):
    """Typed values by topic option name. Never changes."""

    __slots__ = ("_broker", "_own", "overrides")

    def __init__(self, broker: BrokerConfig, overrides: Mapping[str, str]) -> None:
        self._broker = broker
        self.overrides = dict(overrides)
        self._own = _effective_overrides(overrides)

    def get(self, name: str) -> Value:
        if name in self._own:
            return self._own[name]
        option = TOPIC_OPTIONS[name]
        return self._broker.get(option.synonyms[0]) if option.synonyms else option.default

    def describe(self, name: str) -> Described:
        """What DescribeConfigs answers for the topic."""
        option = TOPIC_OPTIONS[name]
        synonyms: tuple[Synonym, ...] = ()
        if name in self.overrides:
            value = format_value(parse_value(option, self.overrides[name]))
            synonyms = (Synonym(name, value, Source.DYNAMIC_TOPIC),)
        if option.synonyms:
            synonyms += self._broker.synonyms(option.synonyms[0])
        elif option.default is not None:
            synonyms += (Synonym(name, format_value(option.default), Source.DEFAULT),)
        return Described(
            option=option,
            value=format_value(self.get(name)),
            source=synonyms[0].source if synonyms else Source.DEFAULT,
            synonyms=synonyms,
            is_read_only=False,
        )


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
