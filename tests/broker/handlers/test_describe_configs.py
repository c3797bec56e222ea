from millstream.wire.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from millstream.wire.apis.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementallyAlterableConfig,
)
from tests.support.raw_client import RawClient


def test_the_documentation_of_an_option_says_that_it_has_no_effect(
    client: RawClient, topic: str
) -> None:
    described = client.ask(
        DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=2, resource_name=topic, configuration_keys=[name]
                )
                for name in ("preallocate", "segment.bytes")
            ],
            include_synonyms=False,
            include_documentation=True,
        ),
        4,
    )
    without_effect, works = [each.configs[0].documentation for each in described.results]
    assert without_effect.endswith("Here: accepted, no effect.")
    assert "no effect" not in works


def test_what_one_request_leaves_out_another_still_gets(client: RawClient) -> None:
    def describe(*, is_full: bool) -> list[tuple[int, bool]]:
        described = client.ask(
            DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(
                        resource_type=4,
                        resource_name="",
                        configuration_keys=["log.retention.ms", "num.partitions"],
                    )
                ],
                include_synonyms=is_full,
                include_documentation=is_full,
            ),
            4,
        )
        configs = described.results[0].configs
        return [(len(each.synonyms), each.documentation is None) for each in configs]

    assert describe(is_full=True) == [(1, False), (1, False)]
    assert describe(is_full=False) == [(0, True), (0, True)]
    assert describe(is_full=True) == [(1, False), (1, False)]


def test_a_changed_option_of_the_broker_is_shown_at_once(client: RawClient) -> None:
    def value() -> str | None:
        described = client.ask(
            DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(
                        resource_type=4, resource_name="", configuration_keys=["log.retention.ms"]
                    )
                ],
                include_synonyms=False,
                include_documentation=False,
            ),
            4,
        )
        found: str | None = described.results[0].configs[0].value
        return found

    before = value()
    client.ask(
        IncrementalAlterConfigsRequest(
            resources=[
                IncrementalAlterConfigsResource(
                    resource_type=4,
                    resource_name="",
                    configs=[
                        IncrementallyAlterableConfig(
                            name="log.retention.ms", config_operation=0, value="12345"
                        )
                    ],
                )
            ],
            validate_only=False,
        ),
        1,
    )
    assert before != "12345"
    assert value() == "12345"
