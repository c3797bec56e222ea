"""acks=all: the answer waits for the disk, says so when it failed, and gives up in time. The
same for the first request of a connection and for those that repeat it.

Covers broker/handlers/produce.py, broker/requests/dispatch.py.
"""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.broker.network.replies import Pending
from millstream.cluster.changes import NewTopic
from millstream.config import load_config
from millstream.errors import KafkaCode, KafkaError
from millstream.model import ANONYMOUS
from millstream.records.builder import build_batch
from millstream.records.records import Record
from millstream.wire.apis.produce import ProducePartitionData, ProduceRequest, ProduceTopicData
from millstream.wire.codec import request_writer, response_reader
from millstream.wire.cursor import Cursor
from millstream.wire.headers import RequestHeader, write_request_header
from tests.support.open_node import OpenNode

VERSION = 11


class HeldDurability:
    """Nothing is safe until the test says so."""

    def __init__(self) -> None:
        self.waits: list[asyncio.Future[None]] = []

    def wait_if_needed(self, *_: object, **__: object) -> "asyncio.Future[None]":
        self.waits.append(asyncio.get_running_loop().create_future())
        return self.waits[-1]


class Producer:
    def __init__(self, node: OpenNode) -> None:
        self._node = node
        self.disk = HeldDurability()
        node.node.disk.durability = self.disk  # type: ignore[assignment]
        self._connection: Any = SimpleNamespace(
            client_id=None,
            listener="PLAINTEXT",
            principal=ANONYMOUS,
            proved_node_id=-1,
            client="127.0.0.1",
            shortcut=None,
            last_request=None,
            is_closed=False,
        )

    @property
    def is_repeating(self) -> bool:
        return self._connection.shortcut is not None

    def send(
        self, correlation_id: int, *, timeout_ms: int = 60_000, partitions: int = 1
    ) -> Pending:
        out = bytearray()
        write_request_header(
            out, RequestHeader(ProduceRequest.api.key, VERSION, correlation_id, "app")
        )
        records = [Record(0, self._node.clock.now_ms(), None, b"value", [])]
        data = [
            ProducePartitionData(index=index, records=build_batch(records, base_offset=0))
            for index in range(partitions)
        ]
        request_writer(ProduceRequest, VERSION)(
            out,
            ProduceRequest(
                transactional_id=None,
                acks=-1,
                timeout_ms=timeout_ms,
                topic_data=[ProduceTopicData(name="t", partition_data=data)],
            ),
        )
        reply = self._node.dispatch(self._connection, memoryview(out))
        assert isinstance(reply, Pending)
        return reply


async def answers_of(reply: Pending) -> list[tuple[int, int]]:
    """Error and base offset of each partition."""
    return [(code, offset) for _, code, offset in await _results_of(reply)]


async def answer_of(reply: Pending) -> tuple[int, int, int]:
    """Correlation id, error and base offset."""
    return (await _results_of(reply))[0]


async def _results_of(reply: Pending) -> list[tuple[int, int, int]]:
    await asyncio.wait([reply.answer])  # type: ignore[list-item]
    done: Any = reply.answer
    [piece] = done.result() if reply.finish is None else reply.finish(done)
    cursor = Cursor(memoryview(piece), 4)
    correlation_id = cursor.int32()
    cursor.skip_tags()
    response = response_reader(ProduceRequest, VERSION)(cursor)
    results = response.responses[0].partition_responses
    return [(correlation_id, each.error_code, each.base_offset) for each in results]


@pytest.fixture(params=[0, 3], ids=["first", "repeated"])
def requests_before(request: pytest.FixtureRequest) -> int:
    count: int = request.param
    return count


def run(folder: Path, requests_before: int, test: Any, *, timeout_ms: int = 60_000) -> None:
    async def with_node() -> None:
        flags = {"log.dirs": str(folder), "listeners": "PLAINTEXT://127.0.0.1:0"}
        node = OpenNode(load_config(flags=flags), dev=True)
        await node.start()
        kept = node.node.disk.durability
        try:
            await node.topics.create([NewTopic("t", 2, 1)], validate_only=False)
            producer = Producer(node)
            for number in range(requests_before):
                reply = producer.send(number, timeout_ms=timeout_ms)
                producer.disk.waits[-1].set_result(None)
                assert await answer_of(reply) == (number, 0, number)
            assert producer.is_repeating == (requests_before > 0)
            checked: Coroutine[Any, Any, None] = test(producer)
            await checked
        finally:
            node.node.disk.durability = kept
            await node.stop()

    asyncio.run(with_node())


def test_the_answer_leaves_when_the_records_are_safe(tmp_path: Path, requests_before: int) -> None:
    async def test(producer: Producer) -> None:
        reply = producer.send(77)
        await asyncio.sleep(0)
        assert isinstance(reply.answer, asyncio.Future)
        assert not reply.answer.done()
        producer.disk.waits[-1].set_result(None)
        assert await answer_of(reply) == (77, 0, requests_before)

    run(tmp_path, requests_before, test)


def test_a_disk_that_failed_is_told(tmp_path: Path, requests_before: int) -> None:
    async def test(producer: Producer) -> None:
        reply = producer.send(78)
        error = KafkaError(KafkaCode.KAFKA_STORAGE_ERROR, "gone")
        producer.disk.waits[-1].set_exception(error)
        assert await answer_of(reply) == (78, KafkaCode.KAFKA_STORAGE_ERROR, -1)

    run(tmp_path, requests_before, test)


def test_a_sync_that_takes_too_long_is_told(tmp_path: Path, requests_before: int) -> None:
    async def test(producer: Producer) -> None:
        reply = producer.send(79, timeout_ms=200)
        assert await answer_of(reply) == (79, KafkaCode.REQUEST_TIMED_OUT, -1)
        assert producer.disk.waits[-1].cancelled()

    # The time-out is part of what a client repeats, and the other requests never wait.
    run(tmp_path, requests_before, test, timeout_ms=200)


def test_the_answer_waits_for_every_partition(tmp_path: Path, requests_before: int) -> None:
    async def test(producer: Producer) -> None:
        for order in ((-1, -2), (-2, -1)):
            reply = producer.send(80, partitions=2)
            assert isinstance(reply.answer, asyncio.Future)
            first, second = order
            producer.disk.waits[first].set_result(None)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not reply.answer.done()
            producer.disk.waits[second].set_result(None)
            assert [code for code, _ in await answers_of(reply)] == [0, 0]

    run(tmp_path, requests_before, test)


def test_a_partition_that_is_safe_is_told_beside_one_that_is_not(
    tmp_path: Path, requests_before: int
) -> None:
    async def test(producer: Producer) -> None:
        reply = producer.send(81, timeout_ms=200, partitions=2)
        producer.disk.waits[-1].set_result(None)
        assert await answers_of(reply) == [(KafkaCode.REQUEST_TIMED_OUT, -1), (0, 0)]

    run(tmp_path, requests_before, test, timeout_ms=200)
