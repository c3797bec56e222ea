from confluent_kafka import Consumer, TopicPartition

from millstream.testing import Broker
from millstream.testing.external import ExternalKafka
from millstream.testing.report import describe


def test_topics_requests_and_faults_are_shown() -> None:
    with Broker(topics={"orders": 2}) as broker:
        broker.topic("orders").produce(["x"], partition=1)
        broker.faults.fail("Fetch", error="UNKNOWN_SERVER_ERROR", times=1)
        consumer = Consumer({**broker.client_config(), "group.id": "g", "client.id": "mine"})
        consumer.commit(offsets=[TopicPartition("orders", 1, 0)], asynchronous=False)
        text = describe(broker)
        consumer.close()
    assert "orders: 0: 0, 1: 1" in text
    assert "g: empty, 1 records behind" in text
    assert "mine (" in text
    assert "  Produce " in text
    assert "fault: fetch: UNKNOWN_SERVER_ERROR" in text


def test_a_broker_that_is_gone_is_no_second_failure() -> None:
    assert "cannot be asked" in describe(ExternalKafka("127.0.0.1:1"))
