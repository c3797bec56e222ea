"""kafka-python 3: a client in pure Python, with threads."""

import time
from collections.abc import Sequence
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError

from tests.interop.clients.base import (
    REQUEST_BYTES_MAX,
    WAIT_SECONDS,
    AdminClient,
    Message,
    Refused,
)


class KafkaPython(AdminClient):
    name = "kafka-python"
    sends_null_headers = False

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._admin = KafkaAdminClient(bootstrap_servers=bootstrap)

    def close(self) -> None:
        self._admin.close()

    def produce(self, topic: str, messages: Sequence[Message], *, codec: str = "none") -> list[int]:
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap,
            compression_type=None if codec == "none" else codec,
            acks="all",
            max_request_size=REQUEST_BYTES_MAX,
            linger_ms=5,
        )
        try:
            sent = [
                producer.send(
                    topic,
                    value=message.value,
                    key=message.key,
                    headers=list(message.headers),
                    partition=0,
                    timestamp_ms=message.timestamp_ms,
                )
                for message in messages
            ]
            return [future.get(WAIT_SECONDS).offset for future in sent]
        except KafkaError as failed:
            raise Refused(type(failed).__name__) from failed
        finally:
            producer.close()

    def consume(self, topic: str, *, count: int, offset: int | None = None) -> list[Message]:
        partition = TopicPartition(topic, 0)
        consumer = self._consumer()
        try:
            consumer.assign([partition])
            if offset is None:
                consumer.seek_to_beginning(partition)
            else:
                consumer.seek(partition, offset)
            received: list[Message] = []
            deadline = time.monotonic() + WAIT_SECONDS
            while len(received) < count and time.monotonic() < deadline:
                polled = consumer.poll(timeout_ms=500, max_records=count - len(received))
                received += [_received(record) for record in polled.get(partition, [])]
            return received
        except KafkaError as failed:
            raise Refused(type(failed).__name__) from failed
        finally:
            consumer.close()

    def offset_at(self, topic: str, timestamp_ms: int) -> int | None:
        partition = TopicPartition(topic, 0)
        consumer = self._consumer()
        found = consumer.offsets_for_times({partition: timestamp_ms})[partition]
        consumer.close()
        return None if found is None else found.offset

    def create_topic(
        self, topic: str, *, partitions: int = 1, configs: dict[str, str] | None = None
    ) -> None:
        wanted = {"num_partitions": partitions, "replication_factor": 1, "configs": configs or {}}
        self._ask("create_topics", {topic: wanted})

    def topic_names(self) -> set[str]:
        return set(self._ask("list_topics"))

    def partition_count(self, topic: str) -> int:
        [described] = self._ask("describe_topics", [topic])
        return len(described["partitions"])

    def topic_configs(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        answer = self._ask("describe_configs", [resource], config_filter="all")
        return {name: entry["value"] for name, entry in answer["topic"][topic].items()}

    def set_config(self, topic: str, *, name: str, value: str) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {name: value})
        self._ask("alter_configs", [resource])

    def add_partitions(self, topic: str, *, total: int) -> None:
        self._ask("create_partitions", {topic: total})

    def delete_records(self, topic: str, *, before_offset: int) -> int:
        partition = TopicPartition(topic, 0)
        answer = self._ask("delete_records", {partition: before_offset})
        return int(answer[partition]["low_watermark"])

    def delete_topic(self, topic: str) -> None:
        self._ask("delete_topics", [topic])

    def _ask(self, method: str, *arguments: Any, **options: Any) -> Any:
        try:
            return getattr(self._admin, method)(*arguments, **options)
        except KafkaError as failed:
            raise Refused(type(failed).__name__) from failed

    def _consumer(self) -> KafkaConsumer:
        return KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            max_partition_fetch_bytes=REQUEST_BYTES_MAX,
        )


def _received(record: Any) -> Message:
    return Message(
        value=record.value,
        key=record.key,
        headers=tuple(record.headers),
        timestamp_ms=record.timestamp,
        offset=record.offset,
    )
