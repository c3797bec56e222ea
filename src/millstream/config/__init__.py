"""Options of nodes, topics and groups: one table, and the values in force.

The tables are in `options_*.py`, one row per option. `load_config` makes the node's
configuration, `topic_config` a topic's. Names are Kafka's.
"""

from millstream.config.broker_config import BrokerConfig, broker_config_problem
from millstream.config.group_config import GroupConfig, group_overrides_problem
from millstream.config.listeners import Listener, inter_broker_listener, parse_listeners
from millstream.config.load import load_config
from millstream.config.option import (
    ConfigError,
    Described,
    Kind,
    Option,
    Source,
    Status,
    Synonym,
    Value,
    format_value,
    parse_value,
)
from millstream.config.tables import BROKER_OPTIONS, GROUP_OPTIONS, TOPIC_OPTIONS
from millstream.config.topic_config import (
    TopicConfig,
    topic_config,
    topic_config_problem,
    topic_overrides_problem,
)

__all__ = [
    "BROKER_OPTIONS",
    "GROUP_OPTIONS",
    "TOPIC_OPTIONS",
    "BrokerConfig",
    "ConfigError",
    "Described",
    "GroupConfig",
    "Kind",
    "Listener",
    "Option",
    "Source",
    "Status",
    "Synonym",
    "TopicConfig",
    "Value",
    "broker_config_problem",
    "format_value",
    "group_overrides_problem",
    "inter_broker_listener",
    "load_config",
    "parse_listeners",
    "parse_value",
    "topic_config",
    "topic_config_problem",
    "topic_overrides_problem",
]
