"""A broker that offers no more than an older release did."""

import pytest
from confluent_kafka import Consumer

from millstream.broker.requests.routes import listed_versions
from millstream.testing.broker import Broker
from millstream.testing.older_kafka import RELEASES, older_kafka
from millstream.wire.headers import RequestHeader


def test_every_release_offers_less_than_this_node() -> None:
    ours = {one.api_key: one.max_version for one in listed_versions()}
    for release in RELEASES:
        header = RequestHeader(18, 3, 1, None)
        offered = older_kafka(release).versions(header, listed_versions()).api_keys
        assert all(one.max_version <= ours[one.api_key] for one in offered)
        assert len(offered) <= len(ours)


def test_what_39_did_not_have() -> None:
    release = older_kafka("3.9")
    assert not release.has_features
    assert release.knows(RequestHeader(0, 11, 1, None))
    assert not release.knows(RequestHeader(0, 12, 1, None))
    assert not older_kafka("3.6").knows(RequestHeader(68, 0, 1, None))
    assert older_kafka("4.0").has_features


def test_another_release_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"2\.8, 3\.0.*not '0\.9'"):
        older_kafka("0.9")


@pytest.mark.parametrize("release", ["2.8", "3.9"])
def test_a_client_speaks_the_older_versions(release: str) -> None:
    limit = older_kafka(release).highest
    with Broker(topics={"orders": 1}) as broker:
        broker.limit_versions(release)
        broker.topic("orders").produce(["x"])
        consumer = Consumer(
            {**broker.client_config(), "group.id": "g", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["orders"])
        message = consumer.poll(30)
        assert message is not None
        assert message.value() == b"x"
        consumer.close()
        highest = {"Produce": limit[0], "Fetch": limit[1], "JoinGroup": limit[11]}
        for api, version in highest.items():
            seen = broker.requests(api)
            assert seen, api
            assert all(version is not None and one.version <= version for one in seen), api


def test_a_client_that_sends_more_is_disconnected() -> None:
    with Broker(topics={"orders": 1}) as broker:
        topic = broker.topic("orders")
        topic.produce(["before"])
        broker.limit_versions("2.8")
        topic.produce(["after"])
        assert [record.text for record in topic.wait(2)] == ["before", "after"]
