"""One consumer without a session fetching again and again: the third fetch takes a shortcut, and
nobody can tell by the answers.

Every request is sent twice, over a connection that repeats itself and over one that seems new.
Covers broker/handlers/fetch.py, broker/requests/repeated_fetches.py, broker/network/output.py.
"""

import asyncio
import gc
import struct
import weakref
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.broker.handlers import fetch as fetch_handler
from millstream.broker.network import connection as connection_module
from millstream.broker.network.connection import IN_FLIGHT_MAX, WAITS_MAX, kept_frame
from millstream.broker.network.output import SendRange
from millstream.broker.network.replies import Pending
from millstream.broker.requests import repeated_fetches
from millstream.cluster.changes import NewTopic
from millstream.config import load_config
from millstream.errors import KafkaCode
from millstream.model import ANONYMOUS
from millstream.records.control import ControlType, EndTransactionMarker
from millstream.records.validation import produced_batch
from millstream.replication.partition import Partition
from millstream.wire.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from millstream.wire.codec import request_writer, response_reader
from millstream.wire.cursor import Cursor
from millstream.wire.fetch import FetchPartition as DecodedPartition
from millstream.wire.headers import SIZE_BYTES, RequestHeader, write_request_header
from tests.broker.handlers.exchanges import batch, values_in
from tests.support.open_node import OpenNode

VERSION = 16
PARTITIONS = 3
LARGE = b"m" * 60_000
FOREVER = 2**31 - 1
FETCH = FetchRequest.api.key


class Consumer:
    """Two connections of one consumer, and what it asks for again and again."""

    def __init__(self, node: OpenNode, **fields: Any) -> None:
        self.node = node
        self.version = fields.pop("version", VERSION)
        self._fields = {"max_wait_ms": 60_000, "min_bytes": 1, "isolation_level": 1, **fields}
        self.general, self.repeating = _connection(), _connection()
        self.pending: list[Pending] = []
        self._number = 0

    def learn(self) -> None:
        for _ in range(2):
            self.node.dispatch(self.repeating, self.frame({0: 0}))
        assert self.repeating.shortcut is not None

    def frame(self, offsets: dict[int, int] | list[FetchPartition]) -> memoryview:
        if isinstance(offsets, dict):
            offsets = [wanted(index, offset) for index, offset in offsets.items()]
        self._number += 1
        topic = self.node.partitions.get("t", 0)
        out = bytearray()
        write_request_header(out, RequestHeader(FETCH, self.version, self._number, "app"))
        request_writer(FetchRequest, self.version)(
            out,
            FetchRequest(
                **{"replica_id": -1, "max_bytes": 1 << 24, "rack_id": "", **self._fields},
                session_id=0,
                session_epoch=-1,
                topics=[FetchTopic(topic="t", topic_id=topic.topic_id, partitions=offsets)],
                forgotten_topics_data=[],
            ),
        )
        return memoryview(out)

    def send(self, frame: memoryview, *, is_known: bool = True) -> list[bytes] | None:
        """The two answers; None while they wait."""
        self.general.shortcut = self.general.last_request = None
        shortcut = self.repeating.shortcut
        counts = self.node.services.counts
        before = counts[FETCH]
        known = shortcut.answer(self.repeating, frame)
        assert (known is not None, counts[FETCH] - before) == (is_known, is_known)
        replies = [
            self.node.dispatch(self.general, frame),
            known or self.node.dispatch(self.repeating, frame),
        ]
        self.pending = [reply for reply in replies if isinstance(reply, Pending)]
        if self.pending:
            assert len(self.pending) == len(replies)
            return None
        return [joined(reply) for reply in replies]

    async def receive(self) -> list[bytes]:
        answers = []
        for reply in self.pending:
            done: Any = reply.answer
            await asyncio.wait([done], timeout=20)
            assert done.done()
            assert reply.finish is not None
            answers.append(joined(reply.finish(done)))
        return answers

    def same(
        self, offsets: dict[int, int] | list[FetchPartition], *, is_known: bool = True
    ) -> list[Any]:
        """The partitions of the one answer that both connections get at once."""
        answers = self.send(self.frame(offsets), is_known=is_known)
        assert answers is not None
        return self.only(answers)

    async def same_later(self) -> list[Any]:
        return self.only(await self.receive())

    def only(self, answers: list[bytes]) -> list[Any]:
        assert answers[0] == answers[1]
        cursor = Cursor(memoryview(answers[0])[SIZE_BYTES + 4 :])
        cursor.skip_tags()
        answer = response_reader(FetchRequest, self.version)(cursor)
        [topic] = answer.responses
        found: list[Any] = topic.partitions
        return found


def _connection() -> Any:
    return SimpleNamespace(
        begin_wait=lambda wait: None,
        end_wait=lambda wait: None,
        client_id=None,
        listener="PLAINTEXT",
        principal=ANONYMOUS,
        peer="127.0.0.1:1",
        proved_node_id=-1,
        client="127.0.0.1",
        shortcut=None,
        last_request=None,
        is_closed=False,
    )


def joined(pieces: list[object]) -> bytes:
    """What would be sent, whose length is as the response says."""
    out = b""
    for piece in pieces:
        if isinstance(piece, SendRange):
            out += piece.file.read_at(piece.position, piece.left)
            piece.release()
        else:
            assert isinstance(piece, bytearray)
            out += piece
    assert struct.unpack_from(">i", out)[0] == len(out) - SIZE_BYTES
    return out


def wanted(index: int, offset: int, **fields: int) -> FetchPartition:
    known = {"current_leader_epoch": -1, "partition_max_bytes": 1 << 20, **fields}
    return FetchPartition(partition=index, fetch_offset=offset, **known)


def partition_of(node: OpenNode, index: int) -> Partition:
    return node.partitions.get("t", index)


def append(node: OpenNode, index: int, *values: bytes, producer_id: int = -1) -> None:
    """A producer with an id writes in a transaction."""
    is_transactional = producer_id >= 0
    data = batch(
        *values,
        producer_id=producer_id,
        epoch=0 if is_transactional else -1,
        sequence=0 if is_transactional else -1,
        is_transactional=is_transactional,
    )
    partition = partition_of(node, index)
    admission = node.services.admissions.of(_connection(), partition)
    terms = admission.write_terms(is_acks_all=True, is_transactional=is_transactional)
    partition.append(produced_batch(memoryview(data)), terms, now_ms=node.clock.now_ms())


def play(folder: Path, scenario: Callable[[OpenNode], Awaitable[None]]) -> None:
    async def run() -> None:
        flags = {"log.dirs": str(folder), "listeners": "PLAINTEXT://127.0.0.1:0"}
        node = OpenNode(load_config(flags=flags), dev=True)
        await node.start()
        try:
            await node.topics.create([NewTopic("t", PARTITIONS, 1)], validate_only=False)
            for index in range(PARTITIONS):
                append(node, index, b"first")
            await scenario(node)
            assert not any(partition.fetch_waits.waiting for partition in node.partitions)
        finally:
            await node.stop()

    asyncio.run(run())


@pytest.mark.parametrize("version", range(12, 18))
@pytest.mark.parametrize("isolation_level", [0, 1])
def test_records_large_and_small_of_partitions_in_any_order(
    tmp_path: Path, version: int, isolation_level: int
) -> None:
    async def scenario(node: OpenNode) -> None:
        consumer = Consumer(node, version=version, isolation_level=isolation_level)
        consumer.learn()
        append(node, 1, LARGE)
        assert [values_in(one) for one in consumer.same({0: 0, 1: 1, 2: 1})] == [
            [b"first"],
            [LARGE],
            [],
        ]
        found = consumer.same({2: 0, 1: 0})
        assert [one.partition_index for one in found] == [2, 1]
        assert [values_in(one) for one in found] == [[b"first"], [b"first", LARGE]]

    play(tmp_path, scenario)


def test_the_limits_of_bytes_hold(tmp_path: Path) -> None:
    async def scenario(node: OpenNode) -> None:
        consumer = Consumer(node, max_bytes=200)
        consumer.learn()
        for index in range(PARTITIONS):
            append(node, index, b"v" * 50)
        # The first batch is whole whatever the limits are; nothing is left for others.
        found = consumer.same([wanted(0, 0, partition_max_bytes=1), wanted(1, 0), wanted(2, 0)])
        assert [len(one.records) > 0 for one in found] == [True, True, False]
        assert values_in(found[0]) == [b"first"]

    play(tmp_path, scenario)


def test_a_wait_ends_with_all_that_changed_during_it(tmp_path: Path) -> None:
    async def scenario(node: OpenNode) -> None:
        consumer = Consumer(node)
        consumer.learn()
        assert consumer.send(consumer.frame({0: 1, 1: 1, 2: 1})) is None
        append(node, 2, b"c")
        append(node, 0, b"a")
        found = await consumer.same_later()
        assert [values_in(one) for one in found] == [[b"a"], [], [b"c"]]
        assert [one.high_watermark for one in found] == [2, 1, 2]

    play(tmp_path, scenario)


def test_a_wait_ends_in_time(tmp_path: Path) -> None:
    async def scenario(node: OpenNode) -> None:
        consumer = Consumer(node, max_wait_ms=5)
        consumer.learn()
        assert consumer.send(consumer.frame({0: 1})) is None
        [found] = await consumer.same_later()
        assert (found.error_code, values_in(found)) == (0, [])

    play(tmp_path, scenario)


@pytest.mark.parametrize("limits", [{"max_wait_ms": 0}, {"min_bytes": 0}])
def test_who_does_not_want_to_wait_does_not(tmp_path: Path, limits: dict[str, int]) -> None:
    async def scenario(node: OpenNode) -> None:
        consumer = Consumer(node, **limits)
        consumer.learn()
        assert [values_in(one) for one in consumer.same({0: 1, 1: 1})] == [[], []]

    play(tmp_path, scenario)


def test_too_few_bytes_are_waited_for_on_the_general_route(tmp_path: Path) -> None:
    async def scenario(node: OpenNode) -> None:
        consumer = Consumer(node, min_bytes=200)
        for _ in range(2):
            consumer.pending = []
            reply = node.dispatch(consumer.repeating, consumer.frame({0: 1}))
            assert isinstance(reply, Pending)
            assert reply.finish is not None
            joined(reply.finish(reply.answer))  # type: ignore[arg-type]
        assert consumer.send(consumer.frame({0: 0, 1: 1}), is_known=False) is None
        append(node, 1, b"v" * 200)
        assert [values_in(one) for one in await consumer.same_later()] == [
            [b"first"],
            [b"v" * 200],
        ]

    play(tmp_path, scenario)


@pytest.mark.parametrize(
    "asked",
    [
        wanted(0, 2),
        wanted(0, -1),
        wanted(PARTITIONS, 0),
        wanted(0, 0, current_leader_epoch=99),
        wanted(0, 5, last_fetched_epoch=0),
        wanted(0, 0, last_fetched_epoch=99),
    ],
)
def test_what_is_wrong_is_told_as_ever(tmp_path: Path, asked: FetchPartition) -> None:
    async def scenario(node: OpenNode) -> None:
        consumer = Consumer(node)
        consumer.learn()
        found = consumer.same([asked, wanted(1, 1)], is_known=False)
        assert found[0].error_code != KafkaCode.NONE or found[0].diverging_epoch.epoch >= 0
        # And the connection goes on.
        assert values_in(consumer.same({1: 0})[0]) == [b"first"]

    play(tmp_path, scenario)


def test_of_a_partition_that_is_named_twice_the_last_counts(tmp_path: Path) -> None:
    async def scenario(node: OpenNode) -> None:
        consumer = Consumer(node)
        consumer.learn()
        [found] = consumer.same([wanted(0, 1), wanted(0, 0)], is_known=False)
        assert values_in(found) == [b"first"]

    play(tmp_path, scenario)


def test_open_and_aborted_transactions(tmp_path: Path) -> None:
    async def scenario(node: OpenNode) -> None:
        consumer = Consumer(node)
        consumer.learn()
        append(node, 0, b"later", producer_id=7)
        # Nothing behind the open transaction is read, and it does not end the wait.
        assert consumer.send(consumer.frame({0: 1})) is None
        append(node, 0, b"behind")
        assert not any(reply.answer.done() for reply in consumer.pending)  # type: ignore[union-attr]
        marker = EndTransactionMarker(ControlType.ABORT, 0)
        partition_of(node, 0).append_marker(
            marker, producer_id=7, producer_epoch=0, now_ms=node.clock.now_ms()
        )
        [found] = await consumer.same_later()
        assert [one.producer_id for one in found.aborted_transactions] == [7]
        assert found.last_stable_offset == 4
        [again] = consumer.same({0: 1}, is_known=False)
        assert again.records == found.records
        [behind] = consumer.same({0: 4, 1: 0})[:1]
        assert values_in(behind) == []

    play(tmp_path, scenario)


def test_a_topic_that_is_deleted_ends_the_wait(tmp_path: Path) -> None:
    async def scenario(node: OpenNode) -> None:
        consumer = Consumer(node)
        consumer.learn()
        assert consumer.send(consumer.frame({0: 1, 1: 1})) is None
        await node.topics.delete("t")
        found = await consumer.same_later()
        assert {one.error_code for one in found} == {KafkaCode.UNKNOWN_TOPIC_ID}

    play(tmp_path, scenario)


def test_a_newer_leader_epoch_ends_the_wait(tmp_path: Path) -> None:
    async def scenario(node: OpenNode) -> None:
        consumer = Consumer(node)
        consumer.learn()
        partition = partition_of(node, 0)
        asked = wanted(0, 1, current_leader_epoch=partition.leader_epoch)
        assert consumer.send(consumer.frame([asked])) is None
        partition.leader_epoch += 1
        node.partitions.generation.bump()
        partition.fetch_waits.wake()
        [found] = await consumer.same_later()
        assert found.error_code == KafkaCode.FENCED_LEADER_EPOCH

    play(tmp_path, scenario)


def test_a_client_that_has_gone_gets_nothing(tmp_path: Path) -> None:
    async def scenario(node: OpenNode) -> None:
        consumer = Consumer(node)
        consumer.learn()
        assert consumer.send(consumer.frame({0: 1})) is None
        consumer.general.is_closed = consumer.repeating.is_closed = True
        append(node, 0, b"a")
        for reply in consumer.pending:
            assert reply.finish is not None
            assert reply.finish(reply.answer) == []  # type: ignore[arg-type]

    play(tmp_path, scenario)


def test_no_wait_is_longer_than_any_client_means_it_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_handler, "FETCH_WAIT_MS_MAX", 5)
    monkeypatch.setattr(repeated_fetches, "FETCH_WAIT_MS_MAX", 5)

    async def scenario(node: OpenNode) -> None:
        consumer = Consumer(node, max_wait_ms=FOREVER)
        consumer.learn()
        assert consumer.send(consumer.frame({0: 1})) is None
        [found] = await consumer.same_later()
        assert (found.error_code, values_in(found)) == (0, [])

    play(tmp_path, scenario)


async def until(condition: Callable[[], bool], what: str) -> None:
    for _ in range(4000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError(what)


def waiting_at(node: OpenNode, index: int) -> int:
    return len(partition_of(node, index).fetch_waits.waiting or ())


async def send_and_leave(node: OpenNode, frames: list[memoryview], *, waits: int) -> None:
    """`waits` of the requests wait at partition 0, until their client leaves."""
    [endpoint] = node.endpoints
    _, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
    for frame in frames:
        writer.write(struct.pack(">i", len(frame)) + frame)
    await until(lambda: waiting_at(node, 0) == waits, "they wait")
    writer.close()
    await writer.wait_closed()
    await until(lambda: waiting_at(node, 0) == 0, "nobody waits")
    assert not node.connections


@pytest.mark.parametrize("requests", [1, 3])
@pytest.mark.parametrize("takes_turns", [False, True])
def test_the_waits_of_a_client_end_when_it_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, requests: int, takes_turns: bool
) -> None:
    """The third of the same takes the shortcut, unless partitions are read in turns."""
    if takes_turns:
        monkeypatch.setattr(fetch_handler, "_PARTITIONS_AT_ONCE_MAX", 0)
        monkeypatch.setattr(fetch_handler, "_PARTITIONS_COMPARED_MAX", 0)

    async def scenario(node: OpenNode) -> None:
        consumer = Consumer(node, max_wait_ms=FOREVER, min_bytes=FOREVER)
        frames = [consumer.frame({0: 1, 1: 1}) for _ in range(requests)]
        await send_and_leave(node, frames, waits=requests)

    play(tmp_path, scenario)


def test_the_wait_of_a_large_request_ends_when_its_client_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing more is read from that client, and its frame is in no memory while it waits."""
    monkeypatch.setattr(connection_module, "_LOOK_SECONDS", 0.01)
    kept: list[weakref.ref[memoryview]] = []

    def keep(frame: memoryview) -> memoryview:
        copied = kept_frame(frame)
        kept.append(weakref.ref(copied))
        return copied

    monkeypatch.setattr(fetch_handler, "kept_frame", keep)

    async def scenario(node: OpenNode) -> None:
        consumer = Consumer(node, max_wait_ms=FOREVER, min_bytes=FOREVER)
        frame = consumer.frame([wanted(0, 1)] * 3000)
        leaving = asyncio.create_task(send_and_leave(node, [frame], waits=1))
        await until(lambda: waiting_at(node, 0) == 1, "it waits")
        assert [each() for each in kept] == [None]
        assert node._server.memory.held_bytes == 0
        await leaving

    play(tmp_path, scenario)


def test_what_a_large_request_repeats_is_not_kept_while_it_waits(tmp_path: Path) -> None:
    async def scenario(node: OpenNode) -> None:
        consumer = Consumer(node, max_wait_ms=FOREVER, min_bytes=FOREVER)
        [endpoint] = node.endpoints
        _, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
        frame = consumer.frame([wanted(0, 1)] * 3000)
        writer.write(struct.pack(">i", len(frame)) + frame)
        await until(lambda: waiting_at(node, 0) == 1, "it waits")
        await until(lambda: _instances_of(DecodedPartition) < 100, "the repetitions are freed")
        assert waiting_at(node, 0) == 1
        [connection] = node.connections
        connection.close()
        await until(lambda: waiting_at(node, 0) == 0, "nobody waits")
        writer.close()

    play(tmp_path, scenario)


def _instances_of(kind: type) -> int:
    return sum(type(each) is kind for each in gc.get_objects())


def test_of_one_client_only_a_few_requests_wait_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "_LOOK_SECONDS", 0.01)

    async def scenario(node: OpenNode) -> None:
        consumer = Consumer(node, max_wait_ms=FOREVER, min_bytes=FOREVER)
        frames = [consumer.frame({0: 1}) for _ in range(IN_FLIGHT_MAX)]
        await send_and_leave(node, frames, waits=WAITS_MAX)

    play(tmp_path, scenario)


def test_those_behind_the_few_that_wait_are_answered_after_them(tmp_path: Path) -> None:
    async def scenario(node: OpenNode) -> None:
        consumer = Consumer(node, max_wait_ms=FOREVER)
        [endpoint] = node.endpoints
        reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
        for _ in range(2 * WAITS_MAX):
            frame = consumer.frame({0: 1})
            writer.write(struct.pack(">i", len(frame)) + frame)
        await until(lambda: waiting_at(node, 0) == WAITS_MAX, "they wait")
        append(node, 0, b"a")
        for number in range(1, 2 * WAITS_MAX + 1):
            [size] = struct.unpack(">i", await reader.readexactly(4))
            answer = await reader.readexactly(size)
            assert struct.unpack_from(">i", answer)[0] == number
        [connection] = node.connections
        assert connection._waits == set()
        writer.close()

    play(tmp_path, scenario)


def test_a_client_of_many_partitions_is_known_by_some_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeated_fetches, "KNOWN_MAX", 1)

    async def scenario(node: OpenNode) -> None:
        consumer = Consumer(node)
        consumer.learn()
        for _ in range(3):
            assert [values_in(one) for one in consumer.same({0: 0, 1: 0})] == [[b"first"]] * 2

    play(tmp_path, scenario)


@pytest.mark.parametrize("fields", [{"rack_id": "a"}, {"replica_id": 5, "version": 14}])
def test_replicas_and_consumers_that_may_be_sent_elsewhere_have_no_shortcut(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    async def scenario(node: OpenNode) -> None:
        consumer = Consumer(node, **fields)
        for _ in range(3):
            node.dispatch(consumer.repeating, consumer.frame({0: 0}))
        assert consumer.repeating.shortcut is None

    play(tmp_path, scenario)
