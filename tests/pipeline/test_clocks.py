import pytest

from millstream.pipeline.clocks import topics_that_trust_producers, trusts_producers
from tests.pipeline.conftest import MakeSpec
from tests.support.broker import Broker


@pytest.mark.parametrize(
    ("configs", "trusts"),
    [
        ({"message.timestamp.type": "CreateTime"}, True),
        ({}, True),
        ({"message.timestamp.type": "LogAppendTime"}, False),
        ({"message.timestamp.after.max.ms": "60000"}, False),
        ({"message.timestamp.after.max.ms": "60001"}, True),
    ],
)
def test_a_topic_trusts_producers_unless_their_times_are_bounded(
    configs: dict[str, str], trusts: bool
) -> None:
    assert trusts_producers(configs, ahead_ms_max=60_000) == trusts


def test_topics_are_asked(kafka: Broker, make_spec: MakeSpec) -> None:
    configs = {"message.timestamp.type": "LogAppendTime"}
    kafka.create_topic("clocks-open")
    kafka.create_topic("clocks-own", configs=configs)
    spec = make_spec(
        f"bootstrap = '{kafka.bootstrap}'\ninput.topics = ['clocks-open', 'clocks-own']"
    )
    assert topics_that_trust_producers(spec) == ["clocks-open"]
