"""Transactional producers of four clients behind one shape."""

import asyncio
import itertools
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

import kafka
from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as PythonPartition

from tests.support.java_client import JavaClient, encode_bytes

SECONDS = 60


class TransactionalProducer(Protocol):
    """One producer; `begin` takes the transactional id over when first called."""

    def begin(self) -> None: ...
    def send(self, topic: str, values: Sequence[bytes]) -> None:
        """Returns when the values are acknowledged."""
        ...

    def send_offset(self, group: str, topic: str, offset: int) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class ConfluentTransactions:
    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._bootstrap = bootstrap
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "log_level": 0,
                "linger.ms": 1,
            }
        )
        self._is_new = True

    def begin(self) -> None:
        if self._is_new:
            self._producer.init_transactions(SECONDS)
            self._is_new = False
        self._producer.begin_transaction()

    def send(self, topic: str, values: Sequence[bytes]) -> None:
        for value in values:
            self._producer.produce(topic, value, partition=0)
        self._producer.flush(SECONDS)

    def send_offset(self, group: str, topic: str, offset: int) -> None:
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": group})
        self._producer.send_offsets_to_transaction(
            [TopicPartition(topic, 0, offset)], consumer.consumer_group_metadata(), SECONDS
        )
        consumer.close()

    def commit(self) -> None:
        self._producer.commit_transaction(SECONDS)

    def abort(self) -> None:
        self._producer.abort_transaction(SECONDS)

    def close(self) -> None:
        self._producer.purge()


class KafkaPythonTransactions:
    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            max_block_ms=SECONDS * 1000,
        )
        self._is_new = True

    def begin(self) -> None:
        if self._is_new:
            self._producer.init_transactions()
            self._is_new = False
        self._producer.begin_transaction()

    def send(self, topic: str, values: Sequence[bytes]) -> None:
        sent = [self._producer.send(topic, value, partition=0) for value in values]
        for future in sent:
            future.get(SECONDS)

    def send_offset(self, group: str, topic: str, offset: int) -> None:
        offsets = {PythonPartition(topic, 0): OffsetAndMetadata(offset, "", -1)}
        self._producer.send_offsets_to_transaction(offsets, group)

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(timeout=1)


class AioTransactions:
    """aiokafka on a loop of its own, stepped by each call."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._options = {"bootstrap_servers": bootstrap, "transactional_id": transactional_id}
        self._producer: AIOKafkaProducer | None = None

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run_until_complete(asyncio.wait_for(coroutine, SECONDS))

    async def _start(self) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(**self._options)
        await producer.start()
        return producer

    def begin(self) -> None:
        if self._producer is None:
            self._producer = self._run(self._start())
        self._run(self._producer.begin_transaction())

    def send(self, topic: str, values: Sequence[bytes]) -> None:
        assert self._producer is not None
        for value in values:
            self._run(self._producer.send_and_wait(topic, value, partition=0))

    def send_offset(self, group: str, topic: str, offset: int) -> None:
        assert self._producer is not None
        self._run(
            self._producer.send_offsets_to_transaction({AioPartition(topic, 0): offset}, group)
        )

    def commit(self) -> None:
        assert self._producer is not None
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        assert self._producer is not None
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        if self._producer is not None:
            self._run(self._producer.stop())
        self._loop.close()


class JavaTransactions:
    """One producer of a Java process that may hold several."""

    _ids = itertools.count()

    def __init__(
        self, java: JavaClient, transactional_id: str, *, request_timeout_ms: int = 10_000
    ) -> None:
        self._java = java
        self._transactional_id = transactional_id
        self._request_timeout_ms = request_timeout_ms
        self._id = f"p{next(self._ids)}"

    def _call(self, command: str, **arguments: Any) -> None:
        self._java.call(command, id=self._id, **arguments)

    def begin(self) -> None:
        self._call(
            "begin",
            transactional_id=self._transactional_id,
            request_timeout_ms=self._request_timeout_ms,
        )

    def send(self, topic: str, values: Sequence[bytes]) -> None:
        self._call("send", topic=topic, values=[encode_bytes(value) for value in values])

    def send_offset(self, group: str, topic: str, offset: int) -> None:
        self._call("send_offsets", topic=topic, offset=offset, group=group)

    def commit(self) -> None:
        self._call("commit")

    def abort(self) -> None:
        self._call("abort")

    def close(self) -> None:
        self._call("close_producer")
