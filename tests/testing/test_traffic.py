import pytest
from confluent_kafka import KafkaException

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


def test_a_request_has_its_time_and_its_error() -> None:
    with Broker(topics={"orders": 1}) as broker:
        broker.topic("orders").produce(["x"])
        [produced] = broker.requests("Produce")
        assert produced.latency_ms is not None
        assert produced.latency_ms > 0
        assert produced.error is None
        with pytest.raises(KafkaException):
            broker.create_topic("orders")
        assert broker.requests("CreateTopics")[-1].error == "TOPIC_ALREADY_EXISTS"
        assert broker.clients() != []


def test_a_connection_breaks_off_in_the_middle_of_an_answer() -> None:
    with Broker(topics={"orders": 1}) as broker:
        rule = broker.faults.drop_connection("Produce", after_bytes=10)
        # The client sends it again; the broker has it already.
        broker.topic("orders").produce(["x"])
        assert rule.applied == 1
        assert len(broker.topic("orders").records()) >= 1


def test_a_delayed_produce_is_written() -> None:
    with Broker(topics={"orders": 1}) as broker:
        rule = broker.faults.delay("Produce", ms=20)
        broker.topic("orders").produce(["x"])
        assert rule.applied >= 1
        assert len(broker.topic("orders").records()) == 1
