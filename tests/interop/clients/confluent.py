"""confluent-kafka: librdkafka under Python."""

import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient as ConfluentAdmin,
)
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from tests.interop.clients.base import (
    REQUEST_BYTES_MAX,
    WAIT_SECONDS,
    AdminClient,
    Message,
    Refused,
)


class ConfluentKafka(AdminClient):
    name = "confluent-kafka"

    def __init__(self, bootstrap: str, *, batch_bytes_max: int = 1_000_000) -> None:
        super().__init__(bootstrap)
        self._batch_bytes_max = batch_bytes_max
        self._admin = ConfluentAdmin({"bootstrap.servers": bootstrap, "log_level": 0})

    def produce(self, topic: str, messages: Sequence[Message], *, codec: str = "none") -> list[int]:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "compression.type": codec,
                "enable.idempotence": True,
                "message.max.bytes": REQUEST_BYTES_MAX,
                "batch.size": self._batch_bytes_max,
                "log_level": 0,
            }
        )
        offsets: list[int] = []
        errors: list[str] = []

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                offsets.append(message.offset())
            else:
                errors.append(error.name())

        for message in messages:
            producer.produce(
                topic,
                value=message.value,
                key=message.key,
                partition=0,
                on_delivery=delivered,
                timestamp=message.timestamp_ms or 0,
                headers=list(message.headers),
            )
        left = producer.flush(WAIT_SECONDS)
        assert left == 0, f"{left} records were not acknowledged in {WAIT_SECONDS} s"
        if errors:
            raise Refused(errors[0])
        return offsets

    def consume(self, topic: str, *, count: int, offset: int | None = None) -> list[Message]:
        consumer = self._consumer()
        start = OFFSET_BEGINNING if offset is None else offset
        consumer.assign([TopicPartition(topic, 0, start)])
        received: list[Message] = []
        deadline = time.monotonic() + WAIT_SECONDS
        while len(received) < count and time.monotonic() < deadline:
            for message in consumer.consume(count - len(received), timeout=0.5):
                if message.error():
                    raise Refused(message.error().name())
                received.append(_received(message))
        consumer.close()
        return received

    def offset_at(self, topic: str, timestamp_ms: int) -> int | None:
        consumer = self._consumer()
        [found] = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp_ms)], WAIT_SECONDS)
        consumer.close()
        return found.offset if found.offset >= 0 else None

    def create_topic(
        self, topic: str, *, partitions: int = 1, configs: dict[str, str] | None = None
    ) -> None:
        wanted = NewTopic(
            topic, num_partitions=partitions, replication_factor=1, config=configs or {}
        )
        _wait(self._admin.create_topics([wanted]))

    def topic_names(self) -> set[str]:
        return set(self._admin.list_topics(timeout=WAIT_SECONDS).topics)

    def partition_count(self, topic: str) -> int:
        return len(self._admin.list_topics(topic, timeout=WAIT_SECONDS).topics[topic].partitions)

    def topic_configs(self, topic: str) -> dict[str, str]:
        configs = _wait(self._admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
        return {name: entry.value for name, entry in configs.items()}

    def set_config(self, topic: str, *, name: str, value: str) -> None:
        change = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
        _wait(self._admin.incremental_alter_configs([resource]))

    def add_partitions(self, topic: str, *, total: int) -> None:
        _wait(self._admin.create_partitions([NewPartitions(topic, total)]))

    def delete_records(self, topic: str, *, before_offset: int) -> int:
        answer = _wait(self._admin.delete_records([TopicPartition(topic, 0, before_offset)]))
        return int(answer.low_watermark)

    def delete_topic(self, topic: str) -> None:
        _wait(self._admin.delete_topics([topic]))

    def _consumer(self) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                # Required by the binding; assign() never joins the group.
                "group.id": "not-used",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.message.max.bytes": REQUEST_BYTES_MAX,
                "log_level": 0,
            }
        )


def _wait(futures: dict[Any, Future[Any]]) -> Any:
    [future] = futures.values()
    try:
        return future.result(WAIT_SECONDS)
    except KafkaException as failed:
        raise Refused(failed.args[0].name()) from failed


def _received(message: Any) -> Message:
    return Message(
        value=message.value(),
        key=message.key(),
        headers=tuple(message.headers() or ()),
        timestamp_ms=message.timestamp()[1],
        offset=message.offset(),
    )
