from millstream.testing.external import ExternalKafka
from tests.support.broker import Broker


def test_what_a_client_can_do_works_on_any_kafka() -> None:
    with Broker() as other:
        kafka = ExternalKafka(other.bootstrap)
        topic = kafka.create_topic("orders", partitions=2)
        topic.produce(["x"])
        assert [record.text for record in kafka.topic("orders").wait(1)] == ["x"]
        assert "orders" in kafka.topic_names()
        assert kafka.group("g").lag() == 0
        kafka.delete_topic("orders")
        assert "orders" not in kafka.topic_names()
