"""Share groups as queues: records acknowledged per second, and from produce to acknowledge.

One by one: four members with one request at a time each, every record in a request of its
own. In batches: one member that acknowledges 500 records with the fetch of the next 500, as
Java's consumer does. Both brokers store what became of the records before they answer, in the
page cache. The client is one thread of Python, the same for both.
"""

import selectors
import socket
import statistics
import struct
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bench.bench import Bench
from bench.brokers import Broker
from bench.rows import Row, at_least, at_most
from millstream.client.protocol import read_answer
from millstream.errors import KafkaCode
from millstream.records.builder import build_key_values
from millstream.wire.apis.produce import ProducePartitionData, ProduceRequest, ProduceTopicData
from millstream.wire.apis.share_acknowledge import (
    ShareAcknowledgePartition,
    ShareAcknowledgeRequest,
    ShareAcknowledgeTopic,
)
from millstream.wire.apis.share_fetch import (
    AcknowledgementBatch,
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchTopic,
)
from millstream.wire.cursor import Cursor
from tests.support.raw_client import RawClient
from tests.support.share_member import ACCEPT, ShareMember, set_group_options

PART = "queues"
AT_ONCE = 500
_MEMBERS = 4
_RECORD_BYTES = 100
_RATE = 200
_WAIT_MS = 500
_VERSION = 2
# Numbers that occur nowhere else in a request, to be replaced in its bytes.
_EPOCH, _OFFSET = 0x5A17C0DE, 0x5EED5EED5EED5EED
# Of a response of ShareFetch, where messages are absent: correlation id, tags, throttle time, code,
# message, lock time-out; partition, code, message, code, message, leader, epoch, tags; an acquired
# range with its count and tags.
_HEAD = struct.Struct(">ibihbi")
_PARTITION = struct.Struct(">ihbhbiib")
_RANGE = struct.Struct(">qqhb")


def run(bench: Bench) -> list[Row]:
    one_by_one = bench.compare("acknowledged one by one", lambda broker: _one_by_one(bench, broker))
    batches = bench.compare(f"acknowledged by {AT_ONCE}", lambda broker: _in_batches(bench, broker))
    latency = bench.compare(
        f"produce to acknowledge at {_RATE}/s", lambda broker: _latency(bench, broker)
    )
    return [
        Row(PART, "acknowledged one by one", "/s", *one_by_one.values(float), at_least(1.5)),
        Row(PART, f"acknowledged by {AT_ONCE}", "/s", *batches.values(float), at_least(1.5)),
        Row(
            PART,
            f"produce to acknowledge at {_RATE}/s, p50",
            "us",
            *latency.values(lambda one: statistics.median(one)),
        ),
        Row(
            PART,
            f"produce to acknowledge at {_RATE}/s, p99",
            "us",
            *latency.values(lambda one: statistics.quantiles(one, n=100)[98]),
            at_most(0.5),
        ),
    ]


# -- a queue ------------------------------------------------------------------------------


@dataclass(slots=True)
class _Queue:
    broker: Broker
    name: str
    client: RawClient

    def produce(self, batches: int) -> None:
        value = b"x" * _RECORD_BYTES
        pairs: list[tuple[bytes, bytes | None]] = [(b"key", value)] * AT_ONCE
        data = bytes(build_key_values(pairs, timestamp_ms=int(time.time() * 1000)))
        for _ in range(batches):
            send_batch(self.client, self.name, data)

    def member(self) -> ShareMember:
        member = ShareMember(self.broker.bootstrap, self.name, self.name)
        member.join()
        member.fetch(records=0)
        return member


def send_batch(client: RawClient, topic: str, data: bytes) -> None:
    row = ProducePartitionData(index=0, records=data)
    request = ProduceRequest(
        acks=1,
        timeout_ms=30_000,
        topic_data=[ProduceTopicData(name=topic, partition_data=[row])],
    )
    [found] = client.ask(request, 9).responses
    assert found.partition_responses[0].error_code == KafkaCode.NONE, found


@contextmanager
def _queue(bench: Bench, broker: Broker) -> Iterator[_Queue]:
    with bench.topic(broker) as topic, RawClient(broker.bootstrap) as client:
        # With the default of 2,000, which four members hold, the first to finish its records has to
        # wait for the others, and the client for it.
        set_group_options(
            client,
            topic,
            share_auto_offset_reset="earliest",
            share_partition_max_record_locks="4000",
        )
        yield _Queue(broker, topic, client)


def acquired(member: ShareMember) -> list[tuple[int, int]]:
    """The ranges of one fetch that finds something."""
    while True:
        found = member.fetch(records=AT_ONCE, wait_ms=_WAIT_MS)
        assert found.code is KafkaCode.NONE, found
        if found.ranges:
            return [(first, last) for first, last, _ in found.ranges]


# -- rates --------------------------------------------------------------------------------


def _in_batches(bench: Bench, broker: Broker) -> float:
    batches = 600 if bench.is_quick else 3_000
    with _queue(bench, broker) as queue, queue.member() as member:
        # Both need a while for their first records; that does not count.
        queue.produce(batches)
        fetcher = _Fetcher(member)
        ranges = acquired(member)
        began = time.perf_counter()
        # Each accepts a batch and finds the next. The last would only wait for more.
        for _ in range(batches - 1):
            [(first, last)] = ranges
            ranges = fetcher.fetch(first, last)
        return (batches - 1) * AT_ONCE / (time.perf_counter() - began)


class _Fetcher:
    """One member, whose fetches accept what the last one has acquired: one range, which is the
    batch that was produced. As with `_Acknowledger`, only the numbers of a frame change, and of a
    response only what is looked for is read."""

    def __init__(self, member: ShareMember) -> None:
        self._member = member
        self._socket: socket.socket = member.client.sock
        batch = AcknowledgementBatch(
            first_offset=_OFFSET, last_offset=_OFFSET, acknowledge_types=[ACCEPT]
        )
        row = ShareFetchPartition(partition_index=0, acknowledgement_batches=[batch])
        request = ShareFetchRequest(
            group_id=member.group,
            member_id=member.member_id,
            share_session_epoch=_EPOCH,
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=AT_ONCE,
            batch_size=AT_ONCE,
            topics=[ShareFetchTopic(topic_id=member.topic_id, partitions=[row])],
            forgotten_topics_data=[],
        )
        self._frame = bytearray(member.client.framed(request, _VERSION))
        self._epoch_at = self._frame.index(struct.pack(">i", _EPOCH))
        self._offset_at = self._frame.index(struct.pack(">qq", _OFFSET, _OFFSET))
        self._buffer = memoryview(bytearray(1 << 20))

    def fetch(self, first: int, last: int) -> list[tuple[int, int]]:
        """Accept a range, and return what is acquired then."""
        struct.pack_into(">i", self._frame, self._epoch_at, self._member.epoch)
        struct.pack_into(">qq", self._frame, self._offset_at, first, last)
        self._member.epoch += 1
        self._socket.sendall(self._frame)
        return _read_acquired(self._receive())

    def _receive(self) -> Cursor:
        """The response after its size. Nothing else is on its way."""
        buffer, have, end = self._buffer, 0, 4
        while have < end:
            count = self._socket.recv_into(buffer[have:])
            assert count, "the broker closed the connection"
            have += count
            if have >= 4:
                end = 4 + struct.unpack_from(">i", buffer)[0]
        return Cursor(buffer[:end], 4)


def _read_acquired(cursor: Cursor) -> list[tuple[int, int]]:
    """The ranges in a response for one partition. It must have no error."""
    _, _, _, error_code, _, _ = cursor.unpack(_HEAD)
    assert error_code == KafkaCode.NONE, error_code
    assert cursor.compact_array_count() == 1, "the partition is missing"
    cursor.take(16)
    assert cursor.compact_array_count() == 1, "the partition is missing"
    _, error_code, _, acknowledge_code, _, _, _, _ = cursor.unpack(_PARTITION)
    assert (error_code, acknowledge_code) == (0, 0), (error_code, acknowledge_code)
    cursor.take(cursor.unsigned_varint() - 1)
    return [cursor.unpack(_RANGE)[:2] for _ in range(cursor.compact_array_count())]


class _Acknowledger:
    """One member, with one request in flight. Frames are made once, and only their numbers
    change: the client should not be what is measured."""

    def __init__(self, member: ShareMember) -> None:
        self.member = member
        self.socket: socket.socket = member.client.sock
        self._left: Iterator[int] = iter(())
        batch = AcknowledgementBatch(
            first_offset=_OFFSET, last_offset=_OFFSET, acknowledge_types=[ACCEPT]
        )
        row = ShareAcknowledgePartition(partition_index=0, acknowledgement_batches=[batch])
        request = ShareAcknowledgeRequest(
            group_id=member.group,
            member_id=member.member_id,
            share_session_epoch=_EPOCH,
            topics=[ShareAcknowledgeTopic(topic_id=member.topic_id, partitions=[row])],
        )
        self._frame = bytearray(member.client.framed(request, _VERSION))
        self._epoch_at = self._frame.index(struct.pack(">i", _EPOCH))
        self._offset_at = self._frame.index(struct.pack(">qq", _OFFSET, _OFFSET))
        # An answer without an error, which all others are compared with.
        self._expected = b""

    def send_next(self) -> None:
        offset = next(self._left, None)
        if offset is None:
            ranges = acquired(self.member)
            self._left = iter([n for first, last in ranges for n in range(first, last + 1)])
            offset = next(self._left)
        struct.pack_into(">i", self._frame, self._epoch_at, self.member.epoch)
        struct.pack_into(">qq", self._frame, self._offset_at, offset, offset)
        self.member.epoch += 1
        self.socket.sendall(self._frame)

    def receive(self) -> None:
        body = self.member.client.receive_frame()
        if not self._expected:
            cursor = Cursor(memoryview(body), 4)
            cursor.skip_tags()
            answer = read_answer(ShareAcknowledgeRequest, _VERSION, cursor)
            codes = [row.error_code for topic in answer.responses for row in topic.partitions]
            assert (answer.error_code, codes) == (0, [0]), answer
            self._expected = body
        assert body == self._expected, body


def _one_by_one(bench: Bench, broker: Broker) -> float:
    with _queue(bench, broker) as queue:
        queue.produce(80 if bench.is_quick else 200)
        members = [_Acknowledger(queue.member()) for _ in range(_MEMBERS)]
        selector = selectors.DefaultSelector()
        for one in members:
            one.send_next()
            selector.register(one.socket, selectors.EVENT_READ, one)
        count = 0
        began = time.perf_counter()
        while time.perf_counter() - began < bench.round_seconds * 2:
            for key, _ in selector.select(1):
                one = key.data
                one.receive()
                count += 1
                one.send_next()
        seconds = time.perf_counter() - began
        selector.close()
        for one in members:
            one.receive()
            one.member.close()
        return count / seconds


# -- latency ------------------------------------------------------------------------------


def _latency(bench: Bench, broker: Broker) -> list[float]:
    """Microseconds from before a record is sent until its acknowledgement is answered."""
    total = int(_RATE * max(bench.round_seconds * 4, 4))
    with _queue(bench, broker) as queue, queue.member() as member:
        sent_at: dict[int, float] = {}
        producer = threading.Thread(target=_produce_at_rate, args=(queue, total, sent_at))
        producer.start()
        found: list[float] = []
        while len(found) < total:
            ranges = acquired(member)
            code = member.acknowledge(*[(first, last, [ACCEPT]) for first, last in ranges])
            assert code is KafkaCode.NONE, code
            now = time.perf_counter()
            found += [
                (now - sent_at[number]) * 1e6
                for first, last in ranges
                for number in range(first, last + 1)
            ]
        producer.join()
    # While the group settles, a fetch waits for things that are not measured here.
    return found[_RATE // 2 :]


def _produce_at_rate(queue: _Queue, total: int, sent_at: dict[int, float]) -> None:
    data = bytes(
        build_key_values(
            [(uuid.uuid4().bytes, b"x" * _RECORD_BYTES)], timestamp_ms=int(time.time() * 1000)
        )
    )
    began = time.perf_counter()
    for number in range(total):
        due = began + number / _RATE
        time.sleep(max(due - time.perf_counter(), 0))
        # From when it was due: a broker that is slow must not hide it.
        sent_at[number] = due
        send_batch(queue.client, queue.name, data)
