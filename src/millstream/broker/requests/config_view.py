"""Options as DescribeConfigs and CreateTopics show them."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from millstream.broker.node.state import NodeState
from millstream.cluster.state import NamedResource, TopicState
from millstream.config import (
    BROKER_OPTIONS,
    TOPIC_OPTIONS,
    BrokerConfig,
    ClientMetricsConfig,
    Described,
    GroupConfig,
    topic_config,
)
from millstream.wire.apis.describe_configs import DescribedConfig, DescribedSynonym

TOPIC: Final = 2
BROKER: Final = 4
BROKER_LOGGER: Final = 8
CLIENT_METRICS: Final = 16
GROUP: Final = 32
# Resources that have options by their names only.
NAMED: Final = {GROUP: NamedResource.GROUP, CLIENT_METRICS: NamedResource.CLIENT_METRICS}
_KINDS: Final = {TOPIC: "topic", GROUP: "group", CLIENT_METRICS: "client metrics"}
_NAMED_CONFIGS: Final = {
    NamedResource.GROUP: GroupConfig,
    NamedResource.CLIENT_METRICS: ClientMetricsConfig,
}


def resource_text(resource_type: int, name: str) -> str:
    """Whose options they are, for a person who reads the log."""
    if resource_type == BROKER:
        return f"node {name}" if name else "all nodes"
    if resource_type == BROKER_LOGGER:
        return f"loggers of node {name}"
    return f"{_KINDS[resource_type]} {name!r}"


def topic_entries(
    node: NodeState, topic: TopicState, *, names: Iterable[str] | None
) -> list[DescribedConfig]:
    config = topic_config(node.config, topic.overrides)
    chosen = TOPIC_OPTIONS if names is None else [n for n in names if n in TOPIC_OPTIONS]
    return [_entry(config.describe(name)) for name in chosen]


def broker_entries(node: NodeState, *, names: Iterable[str] | None) -> list[DescribedConfig]:
    """They are the same objects for every request."""
    known = _known_broker_entries(node.config)
    chosen = known if names is None else [name for name in names if name in known]
    return [known[name] for name in chosen]


# Another configuration replaces the old one when an option changes.
@lru_cache(maxsize=2)
def _known_broker_entries(config: BrokerConfig) -> Mapping[str, DescribedConfig]:
    """By name. To describe all options takes ten milliseconds."""
    known = dict.fromkeys([*BROKER_OPTIONS, *config.names_for_listeners()])
    return {name: _entry(config.describe(name)) for name in known}


def named_entries(
    node: NodeState, kind: NamedResource, name: str, *, names: Iterable[str] | None
) -> list[DescribedConfig]:
    overrides = node.image.named_overrides[kind].get(name, {})
    config = _NAMED_CONFIGS[kind](node.config, overrides)
    chosen = config.options if names is None else [n for n in names if n in config.options]
    return [_entry(config.describe(name)) for name in chosen]


def _entry(described: Described) -> DescribedConfig:
    option = described.option
    return DescribedConfig(
        name=described.name,
        value=described.value,
        read_only=described.is_read_only,
        config_source=described.source,
        is_sensitive=option.is_sensitive,
        synonyms=[
            DescribedSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in described.synonyms
        ],
        config_type=option.kind,
        documentation=option.documentation,
    )
