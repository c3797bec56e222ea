import pytest

from millstream.testing import Broker


@pytest.fixture(scope="module")
def broker():
    with Broker(topics={"orders": 3}) as running:
        yield running


def test_records_come_back_as_they_were(broker: Broker) -> None:
    topic = broker.create_topic("all-parts")
    topic.produce(["value", ("key", b"bytes"), ("k", None, {"h": "1"})])
    first, second, third = topic.records()
    assert (first.key, first.text, first.partition, first.offset) == (None, "value", 0, 0)
    assert (second.key, second.value) == (b"key", b"bytes")
    assert (third.value, third.headers) == (None, (("h", b"1"),))
    assert topic.records(since=2) == [third]


def test_a_topic_is_its_name(broker: Broker) -> None:
    topic = broker.topic("orders")
    assert topic == "orders"
    assert f"{topic}-{topic.name}" == "orders-orders"
    assert topic.end_offsets().keys() == {0, 1, 2}


def test_json(broker: Broker) -> None:
    topic = broker.create_topic("json")
    topic.produce(['{"id": 1}'])
    assert [record.json() for record in topic.wait(1)] == [{"id": 1}]


def test_waiting_in_vain_shows_what_is_there(broker: Broker) -> None:
    topic = broker.create_topic("short")
    topic.produce([("k", "only one")])
    with pytest.raises(TimeoutError, match=r"1 of 2 records[^$]*b'k': b'only one'"):
        topic.wait(2, timeout=0.1)
    with pytest.raises(TimeoutError, match="0 of 1"):
        topic.wait(1, timeout=0.1, where=lambda record: record.text == "other")


def test_an_error_of_the_broker_is_raised(broker: Broker) -> None:
    from confluent_kafka import KafkaException

    with pytest.raises(KafkaException, match="MSG_SIZE_TOO_LARGE"):
        topic = broker.create_topic("small", configs={"max.message.bytes": "100"})
        topic.produce(["x" * 1000])
