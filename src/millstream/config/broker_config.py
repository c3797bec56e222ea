"""The node's effective options: what was set where, over the defaults of the table.

A `BrokerConfig` never changes; a change at run time creates a new one. It types and checks every
value when it is created, so readers do not check again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from millstream.config.connection_overrides import OVERRIDES, parse_overrides
from millstream.config.option import (
    Option,
    Status,
    Value,
    format_value,
    in_unit_of,
    parse_value,
)
from millstream.config.table import (
    BROKER_OPTIONS,
    LISTENER_PREFIX,
    find_broker_option,
    is_per_listener,
)
from millstream.config.values import Described, Source, Synonym, TypedValues
from millstream.errors import ConfigError
from millstream.lazy_dataclass import dataclass

# At run time these are set for one listener, as in Kafka.
_ONLY_PER_LISTENER: Final = ("ssl.keystore.", "ssl.truststore.")
# At run time these have one value for all nodes. The controller decides by them about every
# partition: one node's own value would count for the whole cluster while it is the controller.
ONLY_FOR_ALL_NODES: Final = frozenset({"min.insync.replicas", "unclean.leader.election.enable"})


@dataclass(frozen=True, slots=True)
class Setting:
    """A value that was set, and where: `--set`, the name of a file, ..."""

    value: Value
    origin: str


@dataclass(frozen=True, slots=True)
class _Found:
    name: str
    value: Value
    source: Source


class BrokerConfig(TypedValues):
    """Typed values by option name. Ask with the getter of the option's type."""

    __slots__ = ("_cluster_default", "_effective", "_own", "_static", "notes")

    def __init__(
        self,
        static: Mapping[str, Setting],
        *,
        notes: tuple[str, ...] = (),
        own: Mapping[str, Value] | None = None,
        cluster_default: Mapping[str, Value] | None = None,
    ) -> None:
        self._static = dict(static)
        self._own = dict(own or {})
        self._cluster_default = dict(cluster_default or {})
        self._effective: dict[str, Value] = {}
        self.notes = notes

    def get(self, name: str) -> Value:
        """The effective value, in the unit of `name`. KeyError if there is no such option."""
        if name not in self._effective:
            found = self._found(name)[0]
            value = found.value
            if type(value) is int:
                value = in_unit_of(name, found.name, value)
            self._effective[name] = value
        return self._effective[name]

    def for_listener(self, listener: str, mechanism: str | None = None) -> "ListenerConfig":
        """The options of one listener, and of one SASL mechanism there."""
        return ListenerConfig(self, listener, mechanism)

    def names_for_listeners(self) -> list[str]:
        """Every name that is set with a `listener.name.` prefix."""
        found = {*self._own, *self._cluster_default, *self._static}
        return sorted(name for name in found if name.startswith(LISTENER_PREFIX))

    def set_under(self, full_name: str) -> Value:
        """What is set under exactly this name, with its `listener.name.` prefix; else None."""
        for values in (self._own, self._cluster_default):
            if full_name in values:
                return values[full_name]
        setting = self._static.get(full_name)
        return None if setting is None else setting.value

    def source(self, name: str) -> Source:
        return self._found(name)[0].source

    def origin(self, name: str) -> str:
        """Where the value was set, for a message: `--set`, the name of a file, `default`."""
        found = self._found(name)[0]
        if found.source is Source.STATIC_BROKER:
            return self._static[found.name].origin
        return "default" if found.source is Source.DEFAULT else "changed at run time"

    def is_set(self, name: str) -> bool:
        """Whether this very name is set; its synonyms do not count."""
        return name in self._own or name in self._cluster_default or name in self._static

    def describe(self, name: str) -> Described:
        """What DescribeConfigs answers for the node."""
        option = _option(name)
        considered = self._found(name)
        value = None if option.is_sensitive else format_value(self.get(name))
        return Described(
            option=option,
            value=value,
            source=considered[0].source,
            synonyms=self.synonyms(name),
            is_read_only=not option.is_dynamic,
        )

    def synonyms(self, name: str) -> tuple[Synonym, ...]:
        """Every value that was considered for `name`, the effective one first."""
        return tuple(
            Synonym(
                found.name,
                None if _option(found.name).is_sensitive else format_value(found.value),
                found.source,
            )
            for found in self._found(name)
            if found.value is not None
        )

    def with_dynamic(
        self, overrides: Mapping[str, str], cluster_default: Mapping[str, str] | None = None
    ) -> "BrokerConfig":
        """The same node with these, and only these, values set at run time.

        `overrides` are for this node, `cluster_default` for every node without its own.
        Ignores names that cannot be set so at run time: another release may have stored them, and
        the node must still start.
        """
        own = {name: text for name, text in overrides.items() if name not in ONLY_FOR_ALL_NODES}
        return BrokerConfig(
            self._static,
            notes=self.notes,
            own=_typed_dynamic(own),
            cluster_default=_typed_dynamic(cluster_default or {}),
        )

    def _found(self, name: str) -> Sequence[_Found]:
        """Candidates for `name`: what is set, by precedence, then defaults that are not None."""
        chain = (name, *_option(name).synonyms)
        found = [candidate for link in chain for candidate in self._set_for(link)]
        for link in chain:
            default = _option(link).default
            if default is not None:
                found.append(_Found(link, default, Source.DEFAULT))
        return found or [_Found(name, None, Source.DEFAULT)]

    def _set_for(self, name: str) -> Sequence[_Found]:
        found = []
        if name in self._own:
            found.append(_Found(name, self._own[name], Source.DYNAMIC_BROKER))
        if name in self._cluster_default:
            value = self._cluster_default[name]
            found.append(_Found(name, value, Source.DYNAMIC_DEFAULT_BROKER))
        if name in self._static:
            found.append(_Found(name, self._static[name].value, Source.STATIC_BROKER))
        return found


class ListenerConfig(TypedValues):
    """A node's options as one listener sees them: its own first, else those of the node.

    `listener.name.internal.ssl.keystore.location` is set for the listener INTERNAL, and
    `listener.name.internal.plain.sasl.jaas.config` for its mechanism PLAIN.
    """

    __slots__ = ("_node", "_prefixes")

    def __init__(self, node: BrokerConfig, listener: str, mechanism: str | None) -> None:
        self._node = node
        prefix = f"{LISTENER_PREFIX}{listener.lower()}."
        own = () if mechanism is None else (f"{prefix}{mechanism.lower()}.",)
        self._prefixes = (*own, prefix)

    def is_own(self, name: str) -> bool:
        """Is it set for the listener, not only for the node?"""
        return any(self._node.set_under(prefix + name) is not None for prefix in self._prefixes)

    def get(self, name: str) -> Value:
        for prefix in self._prefixes:
            value = self._node.set_under(prefix + name)
            if value is not None:
                return value
        return self._node.get(name)


def _option(name: str) -> Option:
    """The option's row. With a `listener.name.` prefix, the option without it is the fallback."""
    option = BROKER_OPTIONS.get(name)
    if option is not None:
        return option
    node_wide = find_broker_option(name) if name.startswith(LISTENER_PREFIX) else None
    if node_wide is None:
        raise KeyError(name)
    return replace(node_wide, name=name, default=None, synonyms=(node_wide.name,))


def broker_config_problem(name: str, text: str | None) -> str | None:
    """Why this cannot be set on a running node, or None if it can. None as text unsets."""
    try:
        option = find_broker_option(name)
    except ConfigError as problem:
        return str(problem)
    has_place = option is not None and (name == option.name or is_per_listener(option.name))
    if option is None or not option.is_dynamic or not has_place:
        return f"{name} cannot be changed while the node runs"
    if name.startswith(_ONLY_PER_LISTENER):
        return (
            f"{name} can be changed while the node runs only for one listener: set "
            f"{LISTENER_PREFIX}<listener>.{name}"
        )
    if text is None:
        return None
    try:
        check_allowed(option, parse_value(option, text))
    except ConfigError as problem:
        return str(problem)
    return None


def check_allowed(option: Option, value: Value) -> None:
    """Raises ConfigError for a refused option, unless the value is its default."""
    if option.status is Status.REFUSED and value != option.default:
        raise ConfigError(f"{option.name}: {option.status_text}")
    if option.name.startswith("log.retention.") and value == 0:
        raise ConfigError(f"{option.name}: 0 would delete everything; -1 keeps everything")
    if option.name == OVERRIDES:
        parse_overrides(str(value))


def _typed_dynamic(texts: Mapping[str, str]) -> dict[str, Value]:
    return {
        name: parse_value(option, text)
        for name, text in texts.items()
        if broker_config_problem(name, text) is None
        if (option := find_broker_option(name)) is not None
    }
