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
from millstream.wire.apis.share_fetch import AcknowledgementBatch
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
        set_group_options(client, topic, share_auto_offset_reset="earliest")
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
    with _queue(bench, broker) as queue, queue.member() as member:
        # Both need a while for their first records; that does not count.
        queue.produce(400 if bench.is_quick else 1_000)
        said = [(first, last, [ACCEPT]) for first, last in acquired(member)]
        count = 0
        began = time.perf_counter()
        while time.perf_counter() - began < bench.round_seconds * 2:
            found = member.fetch(records=AT_ONCE, wait_ms=_WAIT_MS, acknowledge=said)
            assert found.acknowledged.get(0) is KafkaCode.NONE, found
            count += sum(last - first + 1 for first, last, _ in said)
            if not found.ranges:
                break
            said = [(first, last, [ACCEPT]) for first, last, _ in found.ranges]
        return count / (time.perf_counter() - began)


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
