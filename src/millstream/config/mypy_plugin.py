"""Makes a misspelled option, or a getter of the wrong type, an error of mypy.

`config.int("log.segment.byte")` and `config.string("log.segment.bytes")` are both found. Names
that mypy does not know as a constant are left to the assertions of the getters.
"""

from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Final

from mypy.plugin import MethodContext, Plugin
from mypy.types import Instance, LiteralType, Type, get_proper_type

from millstream.config.option import Kind, Option
from millstream.config.table import (
    BROKER_OPTIONS,
    CLIENT_METRICS_OPTIONS,
    GROUP_OPTIONS,
    TOPIC_OPTIONS,
)

_TABLES: Final[Mapping[str, Mapping[str, Option]]] = {
    "millstream.config.broker_config.BrokerConfig": BROKER_OPTIONS,
    "millstream.config.broker_config.ListenerConfig": BROKER_OPTIONS,
    "millstream.config.topic_config.TopicConfig": TOPIC_OPTIONS,
    "millstream.config.group_config.GroupConfig": GROUP_OPTIONS,
    "millstream.config.client_metrics_config.ClientMetricsConfig": CLIENT_METRICS_OPTIONS,
}
_TEXTS: Final = frozenset({Kind.STRING, Kind.CLASS, Kind.PASSWORD})
_KINDS: Final[Mapping[str, frozenset[Kind]]] = {
    "int": frozenset({Kind.INT, Kind.SHORT, Kind.LONG}),
    "float": frozenset({Kind.DOUBLE}),
    "boolean": frozenset({Kind.BOOLEAN}),
    "string": _TEXTS,
    "optional_string": _TEXTS,
    "list": frozenset({Kind.LIST}),
    "get": frozenset(Kind),
    "describe": frozenset(Kind),
    "is_set": frozenset(Kind),
}
# Mypy keeps results of modules that did not change; a changed table must count as a change.
__version__ = sha256(Path(__file__).with_name("options.txt").read_bytes()).hexdigest()


class OptionPlugin(Plugin):
    def get_method_hook(self, fullname: str) -> Callable[[MethodContext], Type] | None:
        class_name, _, method = fullname.rpartition(".")
        table, kinds = _TABLES.get(class_name), _KINDS.get(method)
        if table is None or kinds is None:
            return None
        return partial(_check_call, table, kinds, method)


def _check_call(
    table: Mapping[str, Option], kinds: frozenset[Kind], method: str, call: MethodContext
) -> Type:
    name = _constant(call.arg_types[0][0]) if call.arg_types and call.arg_types[0] else None
    if name is not None:
        option = table.get(name)
        if option is None:
            call.api.fail(f'There is no option "{name}" here', call.context)
        elif option.kind not in kinds:
            kind = option.kind.name.lower()
            call.api.fail(f'"{name}" is of type {kind}; {method}() cannot read it', call.context)
    return call.default_return_type


def _constant(argument: Type) -> str | None:
    proper = get_proper_type(argument)
    if isinstance(proper, Instance) and proper.last_known_value is not None:
        proper = proper.last_known_value
    return (
        proper.value if isinstance(proper, LiteralType) and isinstance(proper.value, str) else None
    )


def plugin(version: str) -> type[Plugin]:
    """Where mypy begins."""
    return OptionPlugin
