from millstream.testing import Broker
from millstream.testing.external import ExternalKafka
from millstream.testing.report import describe


def test_topics_requests_and_faults_are_shown() -> None:
    with Broker(topics={"orders": 2}) as broker:
        broker.topic("orders").produce(["x"], partition=1)
        broker.faults.fail("Fetch", error="UNKNOWN_SERVER_ERROR", times=1)
        text = describe(broker)
    assert "orders: 0: 0, 1: 1" in text
    assert "  Produce " in text
    assert "fault: fetch: UNKNOWN_SERVER_ERROR" in text


def test_a_broker_that_is_gone_is_no_second_failure() -> None:
    assert "cannot be asked" in describe(ExternalKafka("127.0.0.1:1"))
