"""A subscription to client metrics (KIP-714): its options, and which clients it matches.

Operators create one by setting options of a resource of type CLIENT_METRICS. It exists as long
as at least one option is set.
"""

from collections.abc import Mapping
from typing import Final

from millstream.config.broker_config import BrokerConfig
from millstream.config.option import parse_value, typed_value
from millstream.config.overrides import OverridingConfig, typed_overrides
from millstream.config.table import CLIENT_METRICS_OPTIONS
from millstream.config.values import Source
from millstream.errors import ConfigError, KafkaCode, KafkaError
from millstream.lazy_dataclass import dataclass
from millstream.patterns import WholePattern

# What a client can be matched by.
CLIENT_INSTANCE_ID: Final = "client_instance_id"
CLIENT_ID: Final = "client_id"
CLIENT_SOFTWARE_NAME: Final = "client_software_name"
CLIENT_SOFTWARE_VERSION: Final = "client_software_version"
CLIENT_SOURCE_ADDRESS: Final = "client_source_address"
CLIENT_SOURCE_PORT: Final = "client_source_port"
_ATTRIBUTES: Final = frozenset(
    {
        CLIENT_INSTANCE_ID,
        CLIENT_ID,
        CLIENT_SOFTWARE_NAME,
        CLIENT_SOFTWARE_VERSION,
        CLIENT_SOURCE_ADDRESS,
        CLIENT_SOURCE_PORT,
    }
)


class ClientMetricsConfig(OverridingConfig):
    """Typed values by the option names of a subscription."""

    __slots__ = ()

    options = CLIENT_METRICS_OPTIONS
    source = Source.DYNAMIC_CLIENT_METRICS

    def __init__(self, broker: BrokerConfig, overrides: Mapping[str, str]) -> None:
        super().__init__(broker, overrides, typed_overrides(CLIENT_METRICS_OPTIONS, overrides))


@dataclass(frozen=True, slots=True)
class Subscription:
    """The options of one subscription, with compiled patterns."""

    metrics: tuple[str, ...]
    interval_ms: int
    match: Mapping[str, WholePattern]

    def matches(self, attributes: Mapping[str, str]) -> bool:
        """Do all patterns match the client's attributes?"""
        return all(pattern.matches(attributes[name]) for name, pattern in self.match.items())


def parse_subscription(broker: BrokerConfig, overrides: Mapping[str, str]) -> Subscription:
    """From options that `check_client_metrics` accepted."""
    config = ClientMetricsConfig(broker, overrides)
    return Subscription(
        config.list("metrics"), config.int("interval.ms"), _parse_match(config.list("match"))
    )


def check_client_metrics(overrides: Mapping[str, str]) -> None:
    """Raises KafkaError for the first thing that is wrong with a subscription's options."""
    for name, text in overrides.items():
        option = CLIENT_METRICS_OPTIONS.get(name)
        if option is None:
            raise KafkaError(
                KafkaCode.INVALID_REQUEST, f"Unknown client metrics configuration: {name}"
            )
        try:
            value = typed_value(option.kind, text)
        except ValueError as problem:
            raise KafkaError(KafkaCode.INVALID_CONFIG, f"{name}: {problem}") from None
        try:
            parse_value(option, text)
        except ConfigError as problem:
            raise KafkaError(KafkaCode.INVALID_REQUEST, str(problem)) from None
        if name == "match":
            assert isinstance(value, tuple)
            _parse_match(value)


def _parse_match(items: tuple[str, ...]) -> dict[str, WholePattern]:
    """Raises KafkaError for an item that is not NAME=PATTERN."""
    patterns = {}
    for item in items:
        name, sign, text = (part.strip() for part in item.partition("="))
        if not sign or not text or "=" in text:
            raise _illegal(item, "not NAME=PATTERN with one equals sign")
        if name not in _ATTRIBUTES:
            raise _illegal(item, f"{name} is not one of {', '.join(sorted(_ATTRIBUTES))}")
        try:
            patterns[name] = WholePattern(text)
        except ValueError as problem:
            raise _illegal(item, str(problem)) from None
    return patterns


def _illegal(item: str, problem: str) -> KafkaError:
    return KafkaError(
        KafkaCode.INVALID_CONFIG, f"Illegal client matching pattern: {item[:100]}: {problem}"
    )
