from millstream.wire.apis import ApiKey
from millstream.wire.messages import Struct
from tests.support.raw_client import RawClient


def test_the_documentation_of_an_option_says_that_it_has_no_effect(
    client: RawClient, topic: str
) -> None:
    described = client.ask(
        ApiKey.DESCRIBE_CONFIGS,
        4,
        resources=[
            Struct(resource_type=2, resource_name=topic, configuration_keys=[name])
            for name in ("preallocate", "segment.bytes")
        ],
        include_synonyms=False,
        include_documentation=True,
    )
    without_effect, works = [each.configs[0].documentation for each in described.results]
    assert without_effect.endswith("Here: accepted, no effect.")
    assert "no effect" not in works
