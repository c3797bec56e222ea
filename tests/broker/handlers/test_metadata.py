import contextlib
import uuid
from typing import Any

from millstream.cluster.changes import PARTITIONS_PER_REQUEST_MAX
from millstream.errors import KafkaCode
from millstream.model import NO_TOPIC_ID
from millstream.testing import Broker
from millstream.wire.apis.create_topics import CreatableTopic, CreateTopicsRequest
from millstream.wire.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from millstream.wire.apis.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.handlers.exchanges import batch, produce
from tests.support.raw_client import RawClient


def test_metadata_by_id_by_name_and_for_nothing(client: RawClient, topic: str) -> None:
    def ask(topics: list[Any] | None) -> Any:
        return client.ask(
            MetadataRequest(
                topics=topics,
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=False,
            ),
            12,
        )

    found = ask([MetadataRequestTopic(name=topic, topic_id=NO_TOPIC_ID)]).topics[0]
    by_id = ask([MetadataRequestTopic(name=None, topic_id=found.topic_id)]).topics[0]
    assert by_id.name == topic
    unknown = ask([MetadataRequestTopic(name=None, topic_id=uuid.uuid4())]).topics[0]
    assert unknown.error_code == KafkaCode.UNKNOWN_TOPIC_ID
    bad = ask([MetadataRequestTopic(name="no/slash", topic_id=NO_TOPIC_ID)]).topics[0]
    assert bad.error_code == KafkaCode.INVALID_TOPIC_EXCEPTION
    assert ask([]).topics == []
    assert topic in [t.name for t in ask(None).topics]


def test_an_unknown_topic_is_created_when_allowed_and_at_once_usable(client: RawClient) -> None:
    name = f"auto-{uuid.uuid4().hex[:8]}"
    response = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 1)
    assert response.topics[0].error_code == 0
    assert produce(client, name, batch(b"a")).error_code == 0


def test_more_topics_than_a_request_may_create_are_all_refused(client: RawClient) -> None:
    prefix = f"many-{uuid.uuid4().hex[:8]}"
    names = [f"{prefix}-{number}" for number in range(PARTITIONS_PER_REQUEST_MAX + 1)]
    named = [MetadataRequestTopic(name=name) for name in names]
    answered = client.ask(MetadataRequest(topics=named), 9).topics
    assert [topic.name for topic in answered] == names
    assert {topic.error_code for topic in answered} == {KafkaCode.POLICY_VIOLATION}
    present = client.ask(MetadataRequest(topics=None), 9).topics
    assert not any((topic.name or "").startswith(prefix) for topic in present)


def test_of_many_topics_only_those_that_are_missing_are_created(
    client: RawClient, topic: str
) -> None:
    """More names than are read on the loop, so that the longer way is taken."""
    created = f"auto-{uuid.uuid4().hex[:8]}"
    bad = [MetadataRequestTopic(name=f"no/slash-{number}") for number in range(1_500)]
    named = [MetadataRequestTopic(name=name) for name in (created, topic)]
    answered = client.ask(MetadataRequest(topics=[*bad, *named]), 9).topics
    assert {each.error_code for each in answered[:-2]} == {KafkaCode.INVALID_TOPIC_EXCEPTION}
    assert [(each.name, each.error_code) for each in answered[-2:]] == [(created, 0), (topic, 0)]
    assert produce(client, created, batch(b"a")).error_code == 0


def test_an_internal_topic_that_a_client_names_is_as_its_coordinator_needs_it(
    client: RawClient,
) -> None:
    names = ["__consumer_offsets", "__transaction_state"]
    client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names]), 1)
    described = client.ask(
        DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=2, resource_name=name, configuration_keys=["cleanup.policy"]
                )
                for name in names
            ],
            include_synonyms=False,
            include_documentation=False,
        ),
        4,
    )
    assert [each.configs[0].value for each in described.results] == ["compact", "compact"]


def test_many_connections_that_ask_for_large_topics_all_get_a_whole_answer(
    broker: Broker, client: RawClient
) -> None:
    """They are answered a few at a time: see `long_answers`."""
    names = [f"large-{uuid.uuid4().hex[:8]}-{number}" for number in range(3)]
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False
    )
    with contextlib.ExitStack() as stack:
        others = [stack.enter_context(RawClient(broker.bootstrap)) for _ in range(20)]
        creating = [
            CreatableTopic(
                name=name, num_partitions=400, replication_factor=1, assignments=[], configs=[]
            )
            for name in names
        ]
        client.send(CreateTopicsRequest(topics=creating, timeout_ms=60_000), 5)
        # While the topics change, no two answers are the same.
        for _ in range(3):
            for each in others:
                each.send(request, 4)
        for each in others:
            *_, last = [each.receive(MetadataRequest, 4) for _ in range(3)]
            assert {topic.name for topic in last.topics} == set(names)
        assert {topic.error_code for topic in client.receive(CreateTopicsRequest, 5).topics} == {0}
        found = client.ask(request, 4)
        assert [len(topic.partitions) for topic in found.topics] == [400] * 3
        assert {one.error_code for topic in found.topics for one in topic.partitions} == {0}
