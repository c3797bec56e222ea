"""All options, by name, and the search for one."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from millstream.config import (
    options_cluster,
    options_group,
    options_groups,
    options_log,
    options_network,
    options_node,
    options_remote,
    options_replication,
    options_security,
    options_share,
    options_topic,
)
from millstream.config.option import ConfigError, Option

# In the order of the documentation.
BROKER_SECTIONS: Final = (
    options_network,
    options_node,
    options_log,
    options_replication,
    options_groups,
    options_share,
    options_cluster,
    options_remote,
    options_security,
)

BROKER_OPTIONS: Final[Mapping[str, Option]] = MappingProxyType(
    {option.name: option for section in BROKER_SECTIONS for option in section.OPTIONS}
)
TOPIC_OPTIONS: Final[Mapping[str, Option]] = MappingProxyType(
    {option.name: option for option in options_topic.OPTIONS}
)
GROUP_OPTIONS: Final[Mapping[str, Option]] = MappingProxyType(
    {option.name: option for option in options_group.OPTIONS}
)

# Kafka hands every name that begins so to a plug-in; such names are in no table of its own.
PLUGIN_PREFIXES: Final = ("rlmm.config.", "rsm.config.", "config.providers.", "kafka.metrics.")
_LISTENER_PREFIX: Final = "listener.name."


def find_broker_option(name: str) -> Option | None:
    """The row for `name`, None for a plug-in's option. Raises ConfigError if there is no such.

    `listener.name.internal.ssl.keystore.location` is `ssl.keystore.location` for one
    listener, and `listener.name.internal.plain.sasl.jaas.config` for one mechanism of it.
    """
    option = BROKER_OPTIONS.get(name)
    if option is not None:
        return option
    if name.startswith(PLUGIN_PREFIXES):
        return None
    if name.startswith(_LISTENER_PREFIX):
        parts = name.removeprefix(_LISTENER_PREFIX).split(".")
        for start in (1, 2):
            option = BROKER_OPTIONS.get(".".join(parts[start:]))
            if option is not None:
                return option
    raise ConfigError(unknown_name(name, BROKER_OPTIONS))


def unknown_name(name: str, table: Mapping[str, Option]) -> str:
    """One line that says so, and names the nearest option there is."""
    # On first use: only who mistypes pays for it.
    import difflib

    nearest = difflib.get_close_matches(name, table, n=1, cutoff=0.5)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    return f"there is no option {name!r}{hint}"
