"""Copies one topic to another in transactions, until it is killed or done. A program.

    python -m tests.faults.copier BOOTSTRAP RECORDS

It prints a dot for each transaction that it has committed.

Exactly once: the offset read up to and the records written are one transaction. Partitions
are assigned, not subscribed to: a killed member would block the group for a whole session,
and it is the transactional id that keeps two copiers apart.
"""

import sys
from typing import Final

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

SOURCE: Final = "copy-in"
TARGET: Final = "copy-out"
GROUP: Final = "copiers"
TRANSACTIONAL_ID: Final = "copier"
BATCH: Final = 750
_QUICK: Final = {
    "log_level": 0,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
}
_SECONDS: Final = 30


def main(bootstrap: str, records: int) -> int:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": TRANSACTIONAL_ID, **_QUICK}
    )
    # First this one: it ends what the copier before left open, so its offsets are settled.
    producer.init_transactions(_SECONDS)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **_QUICK,
        }
    )
    offset = start(consumer)
    while offset < records:
        messages = consumer.consume(BATCH, timeout=2.0)
        messages = [message for message in messages if message.error() is None]
        if not messages:
            continue
        offset = copy(producer, consumer, messages)
    consumer.close()
    return 0


def start(consumer: Consumer) -> int:
    """Go on from what is committed."""
    [found] = consumer.committed([TopicPartition(SOURCE, 0)], _SECONDS)
    offset = max(found.offset, 0)
    consumer.assign([TopicPartition(SOURCE, 0, offset)])
    return int(offset)


def copy(producer: Producer, consumer: Consumer, messages: list[Message]) -> int:
    """One transaction; where to go on from, which is the beginning if it was aborted."""
    producer.begin_transaction()
    try:
        for message in messages:
            producer.produce(TARGET, message.value(), partition=0)
        next_offset = int(messages[-1].offset()) + 1
        producer.send_offsets_to_transaction(
            [TopicPartition(SOURCE, 0, next_offset)],
            consumer.consumer_group_metadata(),
            _SECONDS,
        )
        commit(producer)
    except KafkaException as failed:
        if not failed.args[0].txn_requires_abort():
            raise
        producer.abort_transaction(_SECONDS)
        return start(consumer)
    return next_offset


def commit(producer: Producer) -> None:
    while True:
        try:
            producer.commit_transaction(_SECONDS)
            print(".", end="", flush=True)
            return
        except KafkaException as failed:
            if not failed.args[0].retriable():
                raise


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
