"""Where the microseconds of a produce and of a fetch go, step by step, inside one process.

    python -m bench.paths

No socket: a node is started in this process and its functions are called as the event loop
calls them. Each figure is the smallest mean of many short bursts, so that other work on the
machine is left out. The steps overlap: an indented one is part of the one above it.
"""

import asyncio
import gc
import os
import struct
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import MethodType, SimpleNamespace
from typing import Any

from bench import frames
from bench.parts.groups import OFFSET_COMMIT, commit_frame
from millstream.broker.broker import Broker
from millstream.broker.network.connection import Connection
from millstream.broker.network.replies import Pending
from millstream.broker.requests.routes import import_handler, served
from millstream.config import load_config
from millstream.model import ANONYMOUS, Codec
from millstream.records.batch import CRC_START, BatchView
from millstream.records.checksum import crc32c
from millstream.records.validation import check_produced, produced_batch
from millstream.wire.apis.create_topics import CreatableTopic, CreateTopicsRequest
from millstream.wire.cursor import Cursor
from millstream.wire.headers import read_request_header
from millstream.wire.produce import read_produce_request

BURSTS = 200
CALLS_PER_BURST = 100
TOPIC = "paths"
# As Java's producer sends them where it is the only one: a batch for each partition.
PARTITIONS = 12
REQUESTS_PER_BURST = 12
_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_CORRELATION_AT = 4
_CRC_AT = 17
_SEQUENCE_AT = 53


def smallest_mean_us(call: Callable[[], Any]) -> float:
    best = float("inf")
    for _ in range(BURSTS):
        began = time.perf_counter()
        for _ in range(CALLS_PER_BURST):
            call()
        best = min(best, time.perf_counter() - began)
    return best / CALLS_PER_BURST * 1e6


def smallest_cpu_us(prepare: Callable[[], Any], calls: list[Callable[[], Any]]) -> float:
    """CPU of a call where all of them are made in turn; `prepare` is called before and not
    counted."""
    best = float("inf")
    for _ in range(BURSTS):
        prepare()
        began = time.process_time()
        for call in calls:
            call()
        best = min(best, time.process_time() - began)
    return best / len(calls) * 1e6


def _connection() -> Any:
    connection = SimpleNamespace(
        _waits=None,
        client_id=None,
        listener="PLAINTEXT",
        shortcut=None,
        last_request=None,
        is_closed=False,
        is_reading=True,
        principal=ANONYMOUS,
        address="127.0.0.1",
        client="127.0.0.1",
        proved_node_id=-1,
        is_abandoned=lambda: False,
        hold_memory=lambda size_bytes: lambda: None,
    )
    # The real ones: each long poll calls both.
    connection.begin_wait = MethodType(Connection.begin_wait, connection)
    connection.end_wait = MethodType(Connection.end_wait, connection)
    return connection


def produce_steps(node: Broker, batch: bytes) -> list[tuple[str, Callable[[], Any]]]:
    """A step is a name and a call that can be repeated for ever."""
    load = frames.produce_load(TOPIC, [batch], acks=1)
    frame = memoryview(bytearray(load.frames[0]))[4:]
    cursor = Cursor(frame)
    header = read_request_header(cursor)
    body_at = cursor.position
    data = read_produce_request(cursor, header.version).topics[0].partitions[0][1]
    assert data is not None
    partition = node.node.partitions.get(TOPIC, 0)
    connection = _connection()
    view, now_ms = BatchView(data), node.node.clock.now_ms()
    terms = node.services.admissions.of(connection, partition).write_terms(
        is_acks_all=False, is_transactional=False
    )
    rules = terms.rules

    def decode() -> None:
        fresh = Cursor(frame, body_at)
        read_produce_request(fresh, header.version)

    def append() -> None:
        partition.append(produced_batch(data), terms, now_ms=now_ms)
        # The append stamped its offset here; clients send zero.
        _INT64.pack_into(data, 0, 0)

    def whole() -> None:
        node.dispatch(connection, frame)
        _INT64.pack_into(data, 0, 0)

    def decoded() -> None:
        connection.shortcut = connection.last_request = None
        whole()

    return [
        ("the whole request, without the socket", whole),
        ("the same, decoded", decoded),
        ("  header", lambda: read_request_header(Cursor(frame))),
        ("  body", decode),
        ("  append", append),
        ("    read the batch header", lambda: BatchView(data)),
        ("    checks, the CRC among them", lambda: check_produced(view, rules, now_ms)),
        ("    CRC alone", view.crc_is_valid),
        ("    write to the page cache", lambda: partition.log.segments[-1].file.append(data)),
    ]


class IdempotentRequests:
    """Requests of one producer with an id, each to the next of `targets`: lists of partitions."""

    def __init__(
        self, node: Broker, batch: bytes, *, producer_id: int, targets: list[list[int]]
    ) -> None:
        self._dispatch = node.dispatch
        self._connection = _connection()
        self._count = BatchView(memoryview(batch)).record_count
        self._sequences = dict.fromkeys(range(PARTITIONS), 0)
        # Of a request, with what is different each time: partition and batch.
        self._requests: list[tuple[memoryview, list[tuple[int, memoryview]]]] = []
        for indexes in targets:
            frame = bytearray(
                frames.produce_load(TOPIC, [batch], acks=-1, partitions=indexes).frames[0]
            )
            view = memoryview(frame)[4:]
            body = Cursor(view)
            header = read_request_header(body)
            topic = read_produce_request(body, header.version).topics[0]
            batches: list[tuple[int, memoryview]] = []
            for index, data in topic.partitions:
                assert data is not None
                _INT64.pack_into(data, 43, producer_id)
                batches.append((index, data))
            self._requests.append((view, batches))

    def prepare(self) -> None:
        """The next sequence numbers, and an offset of zero, which the last append has changed."""
        for frame, batches in self._requests:
            _INT32.pack_into(frame, _CORRELATION_AT, 1)
            for index, data in batches:
                _INT64.pack_into(data, 0, 0)
                _INT32.pack_into(data, 12, -1)
                # Epoch zero.
                data[51:53] = bytes(2)
                _INT32.pack_into(data, _SEQUENCE_AT, self._sequences[index])
                _UINT32.pack_into(data, _CRC_AT, crc32c(data[CRC_START:]))
                self._sequences[index] += self._count

    @property
    def calls(self) -> list[Callable[[], Any]]:
        return [partial(self._send, frame) for frame, _ in self._requests]

    def _send(self, frame: memoryview) -> None:
        self._dispatch(self._connection, frame)

    @property
    def records(self) -> int:
        """How many were sent."""
        return sum(self._sequences.values())


def show_idempotent(node: Broker) -> None:
    """Whole requests as producers send them by default: an id, acks=all. A `--dev` node answers
    when the records are written."""
    now_ms = node.node.clock.now_ms()
    every = list(range(PARTITIONS))
    print("idempotent produce, acks=all, the whole request without the socket")
    for number, (name, record_bytes, count, codec, targets) in enumerate(
        (
            ("100 B to one of 12 partitions in turn", 100, 1, Codec.NONE, [[at] for at in every]),
            ("100 B to each of 12 partitions", 100, 1, Codec.NONE, [every] * REQUESTS_PER_BURST),
            ("16 KB to each of 12 partitions", 1024, 15, Codec.NONE, [every] * REQUESTS_PER_BURST),
            ("the same, lz4", 1024, 15, Codec.LZ4, [every] * REQUESTS_PER_BURST),
        )
    ):
        batch = frames.batch(
            record_bytes=record_bytes, count=count, codec=codec, timestamp_ms=now_ms
        )
        requests = IdempotentRequests(node, batch, producer_id=1000 + number, targets=targets)
        before = _records(node)
        print(f"  {name:44}{smallest_cpu_us(requests.prepare, requests.calls):8.2f} us")
        assert _records(node) - before == requests.records, "not all of them were taken"


def _records(node: Broker) -> int:
    return sum(node.node.partitions.get(TOPIC, at).log.next_offset for at in range(PARTITIONS))


def fetch_steps(node: Broker) -> list[tuple[str, Callable[[], Any]]]:
    frame = memoryview(
        frames.fetch_frame(TOPIC, offset=0, max_bytes=1 << 20, min_bytes=1, wait_ms=0)
    )[4:]
    connection = _connection()
    partition = node.node.partitions.get(TOPIC, 0)

    def whole() -> None:
        reply = node.dispatch(connection, frame)
        assert isinstance(reply, list)
        for piece in reply:
            if hasattr(piece, "release"):
                piece.release()

    return [
        ("the whole request, without the socket", whole),
        ("  find the range", lambda: partition.read(0, max_bytes=1 << 20, at_least_one=True)),
    ]


class LongPolls:
    """Requests of a consumer without a session, as librdkafka's, at the end of three partitions.
    One of them gets a record during each wait."""

    def __init__(self, node: Broker, batch: bytes, *, is_repeated: bool) -> None:
        self._dispatch = node.dispatch
        self._connection = _connection()
        self._is_repeated = is_repeated
        self._partitions = [node.node.partitions.get(TOPIC, at) for at in range(3)]
        self._now_ms = node.node.clock.now_ms()
        self._batch = memoryview(bytearray(batch))
        admission = node.services.admissions.of(self._connection, self._partitions[0])
        self._terms = admission.write_terms(is_acks_all=False, is_transactional=False)

    def frame(self) -> memoryview:
        offsets = [partition.log.next_offset for partition in self._partitions]
        return memoryview(frames.long_poll_frame(TOPIC, offsets))[4:]

    def mean_us(self) -> float:
        """Of the two halves of a request, before and after its wait."""
        best = float("inf")
        for _ in range(BURSTS):
            best = min(best, sum(self._one() for _ in range(CALLS_PER_BURST)))
        return best / CALLS_PER_BURST * 1e6

    def _one(self) -> float:
        frame = self.frame()
        if not self._is_repeated:
            self._connection.shortcut = self._connection.last_request = None
        began = time.perf_counter()
        reply = self._dispatch(self._connection, frame)
        seconds = time.perf_counter() - began
        assert isinstance(reply, Pending)
        assert isinstance(reply.answer, asyncio.Future)
        assert reply.finish is not None
        self._append()
        began = time.perf_counter()
        reply.finish(reply.answer)
        return seconds + time.perf_counter() - began

    def _append(self) -> None:
        _INT64.pack_into(self._batch, 0, 0)
        self._partitions[0].append(produced_batch(self._batch), self._terms, now_ms=self._now_ms)


async def show_long_polls(node: Broker, batch: bytes) -> None:
    print("long poll of 3 partitions, one record of 100 B, without the socket and the append")
    for name, is_repeated in (("the request once more", True), ("the same, decoded", False)):
        print(f"  {name:44}{LongPolls(node, batch, is_repeated=is_repeated).mean_us():8.2f} us")
        # The timers that were cancelled are freed.
        await asyncio.sleep(0)


async def show_commits(node: Broker) -> None:
    """Of one partition. A `--dev` node answers when the record is written."""
    connection = _connection()
    frame = memoryview(bytearray(commit_frame(TOPIC, "g" * 32)))[4:]
    await node.services.groups.shards.ensure_topic()
    import_handler(served()[OFFSET_COMMIT])
    show("commit", [("the request once more", lambda: node.dispatch(connection, frame))])
    assert connection.shortcut is not None


async def create_topic(node: Broker) -> None:
    from millstream.broker.handlers import create_topics
    from millstream.broker.requests.request import Request
    from millstream.wire.headers import RequestHeader

    header = RequestHeader(CreateTopicsRequest.api.key, 5, 1, "paths")
    connection = _connection()
    topic = CreatableTopic(
        name=TOPIC, num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=[]
    )
    body = CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=False)
    request = Request(header, connection)
    parts = node.services
    answer: Any = create_topics.handle(
        node.node, node.topics, parts.turns, parts.permissions, parts.quotas, request, body
    )
    if asyncio.iscoroutine(answer):
        await answer


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="millstream-paths-") as folder:
        flags = {"log.dirs": str(Path(folder) / "data"), "listeners": "PLAINTEXT://127.0.0.1:0"}
        node = Broker(load_config(flags=flags), dev=True)
        await node.start()
        await create_topic(node)
        gc.disable()
        for name, record_bytes, count in (("one record of 100 B", 100, 1), ("16 KB", 1024, 15)):
            batch = frames.batch(
                record_bytes=record_bytes,
                count=count,
                codec=Codec.NONE,
                timestamp_ms=node.node.clock.now_ms(),
            )
            show(f"produce, {name}", produce_steps(node, batch))
        show_idempotent(node)
        show("fetch of a megabyte", fetch_steps(node))
        batch = frames.batch(
            record_bytes=100, count=1, codec=Codec.NONE, timestamp_ms=node.node.clock.now_ms()
        )
        await show_long_polls(node, batch)
        await show_commits(node)
        os.sync()
        await node.stop()


def show(title: str, steps: list[tuple[str, Callable[[], Any]]]) -> None:
    print(title)
    for name, call in steps:
        print(f"  {name:44}{smallest_mean_us(call):8.2f} us")


if __name__ == "__main__":
    asyncio.run(main())
