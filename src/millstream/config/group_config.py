"""A group's effective options: its own, else the node's under the node's names."""

from collections.abc import Mapping
from typing import Final

from millstream.config.broker_config import BrokerConfig
from millstream.config.option import (
    ConfigError,
    Described,
    Source,
    Synonym,
    Value,
    format_value,
    parse_value,
)
from millstream.config.tables import GROUP_OPTIONS
from millstream.config.typed_values import TypedValues

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
}


class GroupConfig(TypedValues):
    """Typed values by group option name. Never changes."""

    __slots__ = ("_broker", "_own")

    def __init__(self, broker: BrokerConfig, overrides: Mapping[str, str]) -> None:
        self._broker = broker
        # Names that a newer release stored are left out.
        self._own = {
            name: parse_value(GROUP_OPTIONS[name], text)
            for name, text in overrides.items()
            if name in GROUP_OPTIONS
        }

    def get(self, name: str) -> Value:
        if name in self._own:
            return self._own[name]
        return self._broker.get(GROUP_OPTIONS[name].synonyms[0])

    def describe(self, name: str) -> Described:
        """What DescribeConfigs answers for the group."""
        option = GROUP_OPTIONS[name]
        synonyms = self._broker.synonyms(option.synonyms[0])
        if name in self._own:
            own = Synonym(name, format_value(self._own[name]), Source.DYNAMIC_GROUP)
            synonyms = (own, *synonyms)
        return Described(
            option=option,
            value=format_value(self.get(name)),
            source=synonyms[0].source,
            synonyms=synonyms,
            is_read_only=False,
        )


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
        assert isinstance(value, int), name
        least, most = _BOUNDS[name]
        if value < broker.int(least):
            return f"{name} must be greater than or equal to {least}"
        if value > broker.int(most):
            return f"{name} must be less than or equal to {most}"
    group = GroupConfig(broker, overrides)
    session, heartbeat = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    touches_both = session in overrides or heartbeat in overrides
    if touches_both and group.int(session) <= group.int(heartbeat):
        return f"{session} must be greater than {heartbeat}"
    return None
