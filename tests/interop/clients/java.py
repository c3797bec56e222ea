"""The Java client of Apache Kafka 4.3, in its own process."""

from collections.abc import Sequence
from typing import Any

from tests.interop.clients.base import AdminClient, Message, Refused
from tests.support.java_client import JavaClient, JavaClientError, decode_bytes, encode_bytes


class Java(AdminClient):
    name = "java"

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._java = JavaClient(bootstrap)

    def close(self) -> None:
        self._java.close()

    def produce(self, topic: str, messages: Sequence[Message], *, codec: str = "none") -> list[int]:
        sent = [
            {
                "key": encode_bytes(message.key),
                "value": encode_bytes(message.value),
                "headers": [[name, encode_bytes(value)] for name, value in message.headers],
                "timestamp_ms": message.timestamp_ms,
            }
            for message in messages
        ]
        offsets: list[int] = self._call("produce", topic=topic, codec=codec, messages=sent)[
            "offsets"
        ]
        return offsets

    def consume(self, topic: str, *, count: int, offset: int | None = None) -> list[Message]:
        answer = self._call("consume", topic=topic, count=count, offset=offset)
        return [
            Message(
                value=decode_bytes(message["value"]),
                key=decode_bytes(message["key"]),
                headers=tuple((name, decode_bytes(value)) for name, value in message["headers"]),
                timestamp_ms=message["timestamp_ms"],
                offset=message["offset"],
            )
            for message in answer["messages"]
        ]

    def offset_at(self, topic: str, timestamp_ms: int) -> int | None:
        found: int | None = self._call("offset_at", topic=topic, timestamp_ms=timestamp_ms)[
            "offset"
        ]
        return found

    def create_topic(
        self, topic: str, *, partitions: int = 1, configs: dict[str, str] | None = None
    ) -> None:
        self._call("create_topic", topic=topic, partitions=partitions, configs=configs or {})

    def topic_names(self) -> set[str]:
        return set(self._call("topic_names")["names"])

    def partition_count(self, topic: str) -> int:
        return int(self._call("partition_count", topic=topic)["count"])

    def topic_configs(self, topic: str) -> dict[str, str]:
        configs: dict[str, str] = self._call("topic_configs", topic=topic)["configs"]
        return configs

    def set_config(self, topic: str, *, name: str, value: str) -> None:
        self._call("set_config", topic=topic, name=name, value=value)

    def add_partitions(self, topic: str, *, total: int) -> None:
        self._call("add_partitions", topic=topic, total=total)

    def delete_records(self, topic: str, *, before_offset: int) -> int:
        answer = self._call("delete_records", topic=topic, before_offset=before_offset)
        return int(answer["low_watermark"])

    def delete_topic(self, topic: str) -> None:
        self._call("delete_topic", topic=topic)

    def _call(self, command: str, **arguments: Any) -> dict[str, Any]:
        try:
            return self._java.call(command, **arguments)
        except JavaClientError as failed:
            raise Refused(str(failed)) from failed
