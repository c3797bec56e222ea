import pytest
from confluent_kafka import Consumer

from millstream.testing import Broker


def test_lag_and_catching_up() -> None:
    with Broker(topics={"orders": 1}) as broker:
        broker.topic("orders").produce(["a", "b", "c"])
        group = broker.group("billing")
        assert group.lag() == 0
        with pytest.raises(TimeoutError, match="committed nothing"):
            group.wait_caught_up(timeout=0.1)
        consumer = Consumer(
            {
                **broker.client_config(),
                "group.id": "billing",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe(["orders"])
        first = consumer.poll(20)
        assert first is not None
        consumer.commit(first, asynchronous=False)
        assert group.lag_by_partition() == {("orders", 0): 2}
        with pytest.raises(TimeoutError, match="orders/0: 2"):
            group.wait_caught_up(timeout=0.1)
        for _ in range(2):
            message = consumer.poll(20)
            assert message is not None
            consumer.commit(message, asynchronous=False)
        group.wait_caught_up()
        consumer.close()
