from millstream.testing import Broker
from millstream.testing.traffic import Traffic


def test_only_the_last_are_kept_and_filters_filter() -> None:
    with Broker(topics={"orders": 1}) as broker:
        broker.topic("orders").produce(["x"])
        apis = {seen.api for seen in broker.requests()}
        assert {"ApiVersions", "Metadata", "CreateTopics", "Produce"} <= apis
        assert {seen.api for seen in broker.requests("produce")} == {"Produce"}
        assert broker.requests(client_id="nobody") == []


def test_a_new_one_has_seen_nothing() -> None:
    assert Traffic(lambda: 0.0).requests() == []
