"""The options of a topic, with the documentation, the default and the origin of each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from millstream.console.asking import ClusterClient, check
from millstream.console.changes import TOPIC_RESOURCE
from millstream.wire.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribedConfig,
    DescribedSynonym,
)

_ORIGINS: Final = {
    1: "this topic",
    2: "this broker, at run time",
    3: "all brokers, at run time",
    4: "the broker's configuration",
    5: "default",
    6: "the broker's loggers",
}
_OWN: Final = 1
_DEFAULT: Final = 5


@dataclass(frozen=True, slots=True)
class OptionRow:
    name: str
    # None for a secret, and where there is none.
    value: str | None
    default: str | None
    origin: str
    documentation: str
    # Set for this topic.
    is_own: bool
    is_read_only: bool
    is_sensitive: bool


async def topic_options(client: ClusterClient, topic: str) -> list[OptionRow]:
    """Own ones first. Raises AskFailed."""
    resource = DescribeConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=None
    )
    request = DescribeConfigsRequest(
        resources=[resource], include_synonyms=True, include_documentation=True
    )
    [result] = (await client.ask_any(request)).results
    check(result.error_code, f"topic {topic}", result.error_message)
    rows = [_row(each) for each in result.configs]
    return sorted(rows, key=lambda row: (not row.is_own, row.name))


async def cleanup_policies(client: ClusterClient, topics: Sequence[str]) -> dict[str, str]:
    """Of those topics whose options may be read. Raises AskFailed."""
    resources = [
        DescribeConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=["cleanup.policy"]
        )
        for topic in topics
    ]
    answer = await client.ask_any(DescribeConfigsRequest(resources=resources))
    return {
        result.resource_name: config.value or ""
        for result in answer.results
        for config in result.configs
    }


def _row(config: DescribedConfig) -> OptionRow:
    default = next(
        (_default(config, each) for each in config.synonyms if each.source == _DEFAULT), None
    )
    return OptionRow(
        config.name,
        config.value,
        default,
        _ORIGINS.get(config.config_source, "unknown"),
        config.documentation or "",
        config.config_source == _OWN,
        config.read_only,
        config.is_sensitive,
    )


def _default(config: DescribedConfig, synonym: DescribedSynonym) -> str | None:
    """With the name of the broker's option where that has another unit: 168 hours."""
    is_same_unit = synonym.name.rpartition(".")[2] == config.name.rpartition(".")[2]
    return synonym.value if is_same_unit else f"{synonym.value} ({synonym.name})"
