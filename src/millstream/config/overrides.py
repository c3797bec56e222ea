"""Options of a topic, a group or a subscription: its own settings, else the node's.

The order among the node's own sources is in `broker_config`.
"""

from collections.abc import Mapping
from typing import ClassVar

from millstream.config.broker_config import BrokerConfig
from millstream.config.option import Option, Status, Value, format_value, parse_value
from millstream.config.values import Described, Source, Synonym, TypedValues


def set_without_effect(
    options: Mapping[str, Option], present: Mapping[str, str], overrides: Mapping[str, str]
) -> list[str]:
    """A line for each option without effect that `overrides` sets to another value."""
    return [
        f"{name}: {options[name].status_text}"
        for name, text in overrides.items()
        if present.get(name) != text
        # A newer release may have stored names that this one does not know.
        and name in options
        and options[name].status is Status.NO_EFFECT
    ]


def typed_overrides(
    options: Mapping[str, Option], overrides: Mapping[str, str]
) -> dict[str, Value]:
    """The stored settings as values. A newer release may have stored other names."""
    return {
        name: parse_value(options[name], text)
        for name, text in overrides.items()
        if name in options
    }


class OverridingConfig(TypedValues):
    """Typed values by the option names of one scope. Never changes.

    `overrides` are the settings as stored. `_own` are the typed values that they result in.
    """

    __slots__ = ("_broker", "_own", "overrides")

    options: ClassVar[Mapping[str, Option]]
    source: ClassVar[Source]

    def __init__(
        self, broker: BrokerConfig, overrides: Mapping[str, str], own: Mapping[str, Value]
    ) -> None:
        self._broker = broker
        self._own = own
        self.overrides = dict(overrides)

    def get(self, name: str) -> Value:
        if name in self._own:
            return self._own[name]
        option = self.options[name]
        return self._broker.get(option.synonyms[0]) if option.synonyms else option.default

    def describe(self, name: str) -> Described:
        """What DescribeConfigs answers for the resource."""
        option = self.options[name]
        synonyms: tuple[Synonym, ...] = ()
        if name in self.overrides:
            value = format_value(parse_value(option, self.overrides[name]))
            synonyms = (Synonym(name, value, self.source),)
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
