"""The load is what it says: whole transactions, committed one after the other."""

import contextlib

from confluent_kafka import Consumer, TopicPartition

from bench.transacting import BATCH_RECORDS_MAX, TransactionalLoad
from tests.support.broker import Broker


def test_every_transaction_is_committed_whole() -> None:
    records = BATCH_RECORDS_MAX + 1
    with Broker() as broker:
        broker.create_topic("t")
        load = TransactionalLoad(
            broker.bootstrap, "t", records=records, transactional_id="one of them"
        )
        with contextlib.closing(load):
            load.commit_one()
            load.commit_one()
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "g",
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.assign([TopicPartition("t", 0, 0)])
        found = [consumer.consume(1, timeout=20)[0] for _ in range(2 * records)]
        # Two transactions, each with its marker behind it.
        _, end = consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=20)
        consumer.close()

    assert all(message.error() is None for message in found)
    assert [message.offset() for message in found] == [
        *range(records),
        *range(records + 1, 2 * records + 1),
    ]
    assert end == 2 * records + 2
