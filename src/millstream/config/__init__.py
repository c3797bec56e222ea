"""Options of nodes, topics, groups and client metrics: one table, and the values in force.

`options.txt` is the table: one row per option, under Kafka's names. `load_config` builds the
node's configuration; `topic_config` and `GroupConfig` put a topic's or a group's settings over it.
`documentation.py` writes docs/configuration.md from the table.
May import only ground modules (`errors`, `model`, ...). Reads option files; does no other I/O.
"""

from millstream.config.broker_config import (
    ONLY_FOR_ALL_NODES,
    BrokerConfig,
    ListenerConfig,
    broker_config_problem,
)
from millstream.config.client_metrics_config import (
    ClientMetricsConfig,
    Subscription,
    check_client_metrics,
    parse_subscription,
)
from millstream.config.group_config import GroupConfig, group_overrides_problem
from millstream.config.listeners import (
    Listener,
    insecure_listeners,
    inter_broker_listener,
    parse_listeners,
)
from millstream.config.load import load_config
from millstream.config.option import (
    Kind,
    Option,
    Status,
    Value,
    format_value,
    parse_value,
)
from millstream.config.overrides import set_without_effect
from millstream.config.table import (
    BROKER_OPTIONS,
    CLIENT_METRICS_OPTIONS,
    GROUP_OPTIONS,
    TOPIC_OPTIONS,
)
from millstream.config.topic_config import (
    TopicConfig,
    topic_config,
    topic_config_problem,
    topic_overrides_problem,
)
from millstream.config.values import Described, Source, Synonym
from millstream.errors import ConfigError

__all__ = [
    "BROKER_OPTIONS",
    "CLIENT_METRICS_OPTIONS",
    "GROUP_OPTIONS",
    "ONLY_FOR_ALL_NODES",
    "TOPIC_OPTIONS",
    "BrokerConfig",
    "ClientMetricsConfig",
    "ConfigError",
    "Described",
    "GroupConfig",
    "Kind",
    "Listener",
    "ListenerConfig",
    "Option",
    "Source",
    "Status",
    "Subscription",
    "Synonym",
    "TopicConfig",
    "Value",
    "broker_config_problem",
    "check_client_metrics",
    "format_value",
    "group_overrides_problem",
    "insecure_listeners",
    "inter_broker_listener",
    "load_config",
    "parse_listeners",
    "parse_subscription",
    "parse_value",
    "set_without_effect",
    "topic_config",
    "topic_config_problem",
    "topic_overrides_problem",
]
