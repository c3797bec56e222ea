"""aiokafka: a client in Python on asyncio. Each call runs its own event loop."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, for_code

from tests.interop.clients.base import (
    REQUEST_BYTES_MAX,
    WAIT_SECONDS,
    AdminClient,
    Message,
    Refused,
)

T = TypeVar("T")


class AioKafka(AdminClient):
    name = "aiokafka"

    def produce(self, topic: str, messages: Sequence[Message], *, codec: str = "none") -> list[int]:
        async def send_all() -> list[int]:
            producer = AIOKafkaProducer(
                bootstrap_servers=self.bootstrap,
                compression_type=None if codec == "none" else codec,
                enable_idempotence=True,
                max_request_size=REQUEST_BYTES_MAX,
                linger_ms=5,
            )
            async with producer:
                sent = [
                    await producer.send(
                        topic,
                        value=message.value,
                        key=message.key,
                        headers=list(message.headers),
                        partition=0,
                        timestamp_ms=message.timestamp_ms,
                    )
                    for message in messages
                ]
                return [(await future).offset for future in sent]

        return _run(send_all())

    def consume(self, topic: str, *, count: int, offset: int | None = None) -> list[Message]:
        partition = TopicPartition(topic, 0)

        async def read() -> list[Message]:
            received: list[Message] = []
            async with self._consumer() as consumer:
                consumer.assign([partition])
                if offset is None:
                    await consumer.seek_to_beginning(partition)
                else:
                    consumer.seek(partition, offset)
                while len(received) < count:
                    async with asyncio.timeout(WAIT_SECONDS):
                        received.append(_received(await consumer.getone(partition)))
            return received

        return _run(read())

    def offset_at(self, topic: str, timestamp_ms: int) -> int | None:
        partition = TopicPartition(topic, 0)

        async def look_up() -> int | None:
            async with self._consumer() as consumer:
                consumer.assign([partition])
                found = (await consumer.offsets_for_times({partition: timestamp_ms}))[partition]
                return None if found is None else int(found.offset)

        return _run(look_up())

    def create_topic(
        self, topic: str, *, partitions: int = 1, configs: dict[str, str] | None = None
    ) -> None:
        wanted = NewTopic(topic, partitions, 1, topic_configs=configs)
        answer = self._ask(lambda admin: admin.create_topics([wanted]))
        _check(answer.topic_errors[0][1])

    def topic_names(self) -> set[str]:
        return set(self._ask(lambda admin: admin.list_topics()))

    def partition_count(self, topic: str) -> int:
        [described] = self._ask(lambda admin: admin.describe_topics([topic]))
        return len(described["partitions"])

    def topic_configs(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        [answer] = self._ask(lambda admin: admin.describe_configs([resource]))
        error_code, _, _, _, entries = answer.resources[0]
        _check(error_code)
        return {entry[0]: entry[1] for entry in entries}

    def set_config(self, topic: str, *, name: str, value: str) -> None:
        # AlterConfigs, the old full replacement: the only one aiokafka speaks.
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {name: value})
        [answer] = self._ask(lambda admin: admin.alter_configs([resource]))
        _check(answer.resources[0][0])

    def add_partitions(self, topic: str, *, total: int) -> None:
        wanted = {topic: NewPartitions(total)}
        answer = self._ask(lambda admin: admin.create_partitions(wanted))
        _check(answer.topic_errors[0][1])

    def delete_records(self, topic: str, *, before_offset: int) -> int:
        partition = TopicPartition(topic, 0)
        wanted = {partition: RecordsToDelete(before_offset)}
        answer = self._ask(lambda admin: admin.delete_records(wanted))
        return int(answer[partition])

    def delete_topic(self, topic: str) -> None:
        answer = self._ask(lambda admin: admin.delete_topics([topic]))
        _check(answer.topic_error_codes[0][1])

    def _ask(self, question: Callable[[AIOKafkaAdminClient], Awaitable[Any]]) -> Any:
        async def ask() -> Any:
            admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
            await admin.start()
            try:
                return await question(admin)
            finally:
                await admin.close()

        return _run(ask())

    def _consumer(self) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            max_partition_fetch_bytes=REQUEST_BYTES_MAX,
        )


def _run(work: Awaitable[T]) -> T:
    async def run() -> T:
        return await work

    try:
        return asyncio.run(run())
    except KafkaError as failed:
        raise Refused(type(failed).__name__) from failed


def _check(error_code: int) -> None:
    if error_code != 0:
        raise Refused(for_code(error_code).__name__)


def _received(record: Any) -> Message:
    return Message(
        value=record.value,
        key=record.key,
        headers=tuple(record.headers),
        timestamp_ms=record.timestamp,
        offset=record.offset,
    )
