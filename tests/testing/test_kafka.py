from millstream.testing.kafka import Kafka
from tests.support.broker import Broker


def test_topics_that_are_missing_are_created_once() -> None:
    with Broker() as broker:
        kafka = Kafka(broker.bootstrap)
        kafka._create_missing_topics({"orders": 2})
        kafka.topic("orders").produce(["x"])
        kafka._create_missing_topics({"orders": 2, "others": 1})
        assert sorted(kafka.topic("orders").end_offsets().values()) == [0, 1]
        assert kafka.topic("others").end_offsets() == {0: 0}
