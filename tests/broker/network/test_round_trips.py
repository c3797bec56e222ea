"""Many clients with one small produce each under way: they are served together, and each
gets what it would have got alone.

Covers broker/network, broker/handlers/produce.py.
"""

import struct
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from bench.frames import produce_load
from millstream.broker.network.receiving import COMPILED
from millstream.errors import KafkaCode
from millstream.records.batch import BatchView, split_batches
from millstream.records.builder import build_batch
from millstream.records.records import Record, read_records
from millstream.replication.admission import WriteTerms
from millstream.replication.partition import Partition
from millstream.storage.log import Appended, Batches
from millstream.wire.apis.create_topics import CreatableTopic, CreateTopicsRequest
from millstream.wire.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from millstream.wire.apis.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementallyAlterableConfig,
)
from millstream.wire.apis.produce import ProducePartitionData, ProduceRequest, ProduceTopicData
from millstream.wire.message import Message
from tests.support.broker import Broker
from tests.support.node import MillstreamNode
from tests.support.raw_client import RawClient

CLIENTS = 40
# So many requests of a client are handled by its connection before they are known.
BEFORE = 2
VERSION = 11


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def topic(broker: Broker) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    broker.create_topic(name)
    return name


@pytest.fixture
def clients(broker: Broker) -> Iterator[list[RawClient]]:
    with ExitStack() as stack:
        yield [stack.enter_context(RawClient(broker.bootstrap)) for _ in range(CLIENTS)]


def batch(value: bytes, timestamp_ms: int | None = None) -> bytearray:
    now_ms = int(time.time() * 1000)
    return build_batch(
        [Record(0, now_ms if timestamp_ms is None else timestamp_ms, None, value, [])],
        base_offset=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
    )


def send(client: RawClient, topic: str, data: bytearray) -> None:
    client.send(
        ProduceRequest(
            transactional_id=None,
            acks=1,
            timeout_ms=5000,
            topic_data=[
                ProduceTopicData(
                    name=topic, partition_data=[ProducePartitionData(index=0, records=data)]
                )
            ],
        ),
        VERSION,
    )


def result(client: RawClient) -> Any:
    answer = client.receive(ProduceRequest, VERSION)
    found = answer.responses[0].partition_responses[0]
    assert isinstance(found, Message)
    return found


def produce_all(clients: list[RawClient], topic: str, round_number: int) -> dict[int, bytes]:
    """One record each, all under way at once; their offsets."""
    values = [b"%d of round %d" % (number, round_number) for number in range(len(clients))]
    for client, value in zip(clients, values, strict=True):
        send(client, topic, batch(value))
    found = {}
    for client, value in zip(clients, values, strict=True):
        answered = result(client)
        assert answered.error_code == 0
        found[answered.base_offset] = value
    return found


def fetch(client: RawClient, topic: str, offset: int = 0, *, wait_ms: int = 0) -> bytes:
    ask_fetch(client, topic, offset, wait_ms)
    answer = client.receive(FetchRequest, 12)
    return bytes(answer.responses[0].partitions[0].records or b"")


def ask_fetch(client: RawClient, topic: str, offset: int, wait_ms: int) -> None:
    asked = FetchPartition(
        partition=0,
        current_leader_epoch=-1,
        fetch_offset=offset,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=1 << 20,
    )
    client.send(
        FetchRequest(
            replica_id=-1,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[FetchTopic(topic=topic, partitions=[asked])],
            forgotten_topics_data=[],
            rack_id="",
        ),
        12,
    )


def values_from(client: RawClient, topic: str, start: int) -> dict[int, bytes | None]:
    batches = list(split_batches(memoryview(fetch(client, topic, start))))
    assert all(one.crc_is_valid() for one in batches)
    records = [next(iter(read_records(one, limit_bytes=1 << 20))) for one in batches]
    return {record.offset: record.value for record in records}


def configure(client: RawClient, topic: str, name: str, value: str) -> None:
    client.ask(
        IncrementalAlterConfigsRequest(
            resources=[
                IncrementalAlterConfigsResource(
                    resource_type=2,
                    resource_name=topic,
                    configs=[
                        IncrementallyAlterableConfig(name=name, config_operation=0, value=value)
                    ],
                )
            ],
            validate_only=False,
        ),
        1,
    )


def test_every_record_is_where_its_client_was_told(clients: list[RawClient], topic: str) -> None:
    told: dict[int, bytes] = {}
    for round_number in range(10):
        told |= produce_all(clients, topic, round_number)
    assert sorted(told) == list(range(10 * CLIENTS))
    for start in range(0, 10 * CLIENTS, 37):
        found = values_from(clients[0], topic, start)
        assert found == {offset: told[offset] for offset in range(start, 10 * CLIENTS)}


@pytest.mark.skipif(COMPILED is None, reason="millstream.broker.network._receiving is not compiled")
def test_known_requests_are_written_without_their_connections(
    clients: list[RawClient], topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = 0
    append = Partition.append

    def counted(
        partition: Partition, batches: Batches, terms: WriteTerms, *, now_ms: int
    ) -> Appended:
        nonlocal written
        written += 0 if isinstance(batches, BatchView) else len(batches)
        return append(partition, batches, terms, now_ms=now_ms)

    monkeypatch.setattr(Partition, "append", counted)
    for round_number in range(BEFORE + 3):
        produce_all(clients, topic, round_number)
    assert written == 3 * CLIENTS


def test_a_consumer_that_waits_is_woken(clients: list[RawClient], topic: str) -> None:
    for round_number in range(BEFORE + 1):
        produce_all(clients, topic, round_number)
    waiting, *others = clients
    # Longer than this client waits for an answer.
    ask_fetch(waiting, topic, (BEFORE + 1) * CLIENTS, wait_ms=60_000)
    produce_all(others, topic, BEFORE + 1)
    answer = waiting.receive(FetchRequest, 12)
    assert answer.responses[0].partitions[0].records


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("message.timestamp.type", "LogAppendTime"),
        ("compression.type", "lz4"),
        ("flush.messages", "1"),
        ("segment.bytes", "1048576"),
        ("message.timestamp.before.max.ms", "3600000"),
    ],
)
def test_a_topic_may_change_between_two_requests(
    clients: list[RawClient], topic: str, name: str, value: str
) -> None:
    for round_number in range(BEFORE + 1):
        produce_all(clients, topic, round_number)
    configure(clients[0], topic, name, value)
    found = produce_all(clients[1:], topic, BEFORE + 1)
    assert min(found) == (BEFORE + 1) * CLIENTS
    assert len(found) == CLIENTS - 1


def test_a_record_that_became_too_large_is_refused(clients: list[RawClient], topic: str) -> None:
    for round_number in range(BEFORE + 1):
        produce_all(clients, topic, round_number)
    configure(clients[0], topic, "max.message.bytes", "100")
    for number, client in enumerate(clients[1:]):
        send(client, topic, batch(bytes(100 * (number % 2))))
    codes = [result(client).error_code for client in clients[1:]]
    assert codes == [
        KafkaCode.MESSAGE_TOO_LARGE if number % 2 else 0 for number in range(CLIENTS - 1)
    ]


def test_one_bad_batch_among_good_ones(clients: list[RawClient], topic: str) -> None:
    for round_number in range(BEFORE + 1):
        produce_all(clients, topic, round_number)
    damaged = batch(b"damaged")
    damaged[-1] ^= 1
    far_ahead = batch(b"tomorrow", timestamp_ms=int(time.time() * 1000) + 86_400_000)
    special = {3: damaged, 20: far_ahead}
    for number, client in enumerate(clients):
        send(client, topic, special.get(number, batch(b"v")))
    codes = [result(client).error_code for client in clients]
    expected = {3: KafkaCode.CORRUPT_MESSAGE, 20: KafkaCode.INVALID_TIMESTAMP}
    assert codes == [expected.get(number, 0) for number in range(CLIENTS)]


def test_a_topic_that_is_deleted_is_unknown_to_all(
    broker: Broker, clients: list[RawClient], topic: str
) -> None:
    for round_number in range(BEFORE + 1):
        produce_all(clients, topic, round_number)
    broker.delete_topic(topic)
    for client in clients:
        send(client, topic, batch(b"v"))
    codes = {result(client).error_code for client in clients}
    assert codes == {KafkaCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_answers_that_nobody_reads_for_long_come_whole_and_in_order(
    broker: Broker, topic: str
) -> None:
    frame = bytearray(produce_load(topic, [bytes(batch(b"v"))], acks=1).frames[0])
    count = 30_000
    with RawClient(broker.bootstrap) as client:

        def send_all() -> None:
            # Small steps: one request at a time is under way as the node sees it, mostly.
            for number in range(count):
                struct.pack_into(">i", frame, 8, number)
                client.sock.sendall(frame)

        sending = threading.Thread(target=send_all)
        sending.start()
        # All of it, or what the buffers of this machine take.
        sending.join(3)
        for number in range(count):
            answer = client.receive_frame()
            assert struct.unpack_from(">i", answer)[0] == number
        sending.join()


def test_clients_that_leave_without_their_answers_disturb_nobody(
    clients: list[RawClient], topic: str
) -> None:
    for round_number in range(BEFORE + 1):
        produce_all(clients, topic, round_number)
    leaving, staying = clients[::2], clients[1::2]
    for client in clients:
        send(client, topic, batch(b"v"))
    for client in leaving:
        client.sock.close()
    assert {result(client).error_code for client in staying} == {0}
    found = produce_all(staying, topic, BEFORE + 1)
    assert len(found) == len(staying)


def test_requests_of_other_kinds_in_between(clients: list[RawClient], topic: str) -> None:
    for round_number in range(BEFORE + 3):
        produce_all(clients, topic, round_number)
        for client in clients[::3]:
            assert fetch(client, topic, round_number * CLIENTS)


def test_what_was_answered_is_there_after_kill_9(tmp_path: Path) -> None:
    node = MillstreamNode(tmp_path / "data")
    told: dict[int, bytes] = {}
    with node, ExitStack() as stack:
        clients = [stack.enter_context(RawClient(node.bootstrap)) for _ in range(CLIENTS)]
        clients[0].ask(
            CreateTopicsRequest(
                topics=[
                    CreatableTopic(
                        name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[]
                    )
                ],
                timeout_ms=10_000,
                validate_only=False,
            ),
            5,
        )
        for round_number in range(BEFORE + 3):
            told |= produce_all(clients, "t", round_number)
        for client in clients:
            send(client, "t", batch(b"last"))
        for client in clients[::3]:
            told[result(client).base_offset] = b"last"
        node.kill()
        node.start()
        with RawClient(node.bootstrap) as client:
            found = values_from(client, "t", 0)
    assert told.items() <= found.items()
    assert sorted(found) == list(range(len(found)))
