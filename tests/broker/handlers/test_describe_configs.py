from millstream.wire.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
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
