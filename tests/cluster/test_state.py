import uuid

from millstream.cluster.state import (
    BrokerState,
    ClusterImage,
    Endpoint,
    PartitionState,
    TopicState,
)


def test_a_topic_is_found_by_name_and_by_id_until_it_is_removed():
    image = ClusterImage()
    topic = TopicState("t", uuid.UUID(int=5), [PartitionState(1, 0, (1,), (1,), 0)])
    image.add_topic(topic)
    assert image.topics["t"] is image.topics_by_id[uuid.UUID(int=5)] is topic
    assert image.partition("t", 0) is topic.partitions[0]
    assert image.partition("t", 1) is None
    assert image.partition("t", -1) is None
    assert image.partition("u", 0) is None
    assert image.remove_topic("t") is topic
    assert image.topics == image.topics_by_id == {}


def test_only_kafkas_own_topics_are_internal():
    assert TopicState("__consumer_offsets", uuid.UUID(int=1), []).is_internal
    assert not TopicState("__mine", uuid.UUID(int=1), []).is_internal


def test_an_endpoint_is_found_by_its_listener():
    endpoint = Endpoint("OUT", "h", 1)
    broker = BrokerState(1, (Endpoint("IN", "h", 2), endpoint))
    assert broker.endpoint("OUT") is endpoint
    assert broker.endpoint("NONE") is None
