"""One client writing to one topic again and again: the third request takes a shortcut, and
nobody can tell by the answers.

Covers broker/handlers/produce.py, broker/requests/repeated_produces.py, broker/network.
"""

import time
import uuid
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.broker.network import receiving
from millstream.broker.network.connection import Connection
from millstream.broker.network.tls_connection import TlsConnection
from millstream.broker.requests import produced_batches, repeated_produces
from millstream.errors import KafkaCode
from millstream.records.builder import build_batch
from millstream.records.records import Record
from millstream.wire.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from millstream.wire.apis.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementallyAlterableConfig,
)
from millstream.wire.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from millstream.wire.apis.metadata import MetadataRequest, MetadataRequestTopic
from millstream.wire.apis.produce import ProducePartitionData, ProduceRequest, ProduceTopicData
from millstream.wire.codec import request_writer
from millstream.wire.cursor import Cursor
from millstream.wire.headers import RequestHeader, read_request_header, write_request_header
from millstream.wire.message import Message
from millstream.wire.produce import read_produce_request
from millstream.wire.repeated import repeated_produce
from tests.support.broker import Broker
from tests.support.raw_client import RawClient

# With this many requests before it, a request is a repetition.
REPEATED = 3


@pytest.fixture(scope="module", params=["compiled", "plain"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A node that answers repetitions in compiled code, and one that has none for that."""
    if request.param == "compiled" and receiving.COMPILED is None:
        pytest.skip("millstream.broker.network._receiving is not compiled")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "plain":
            patch.setattr(receiving, "COMPILED", None)
            patch.setattr(repeated_produces, "IMPLEMENTATION", produced_batches.PURE)
        with Broker() as running:
            yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap) as connected:
        yield connected


@pytest.fixture
def topic(broker: Broker) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    broker.create_topic(name, partitions=2)
    return name


def batch(*values: bytes, is_transactional: bool = False) -> bytearray:
    records = [Record(i, int(time.time() * 1000), None, v, []) for i, v in enumerate(values)]
    return build_batch(
        records,
        base_offset=0,
        producer_id=7 if is_transactional else -1,
        producer_epoch=0 if is_transactional else -1,
        base_sequence=0 if is_transactional else -1,
        is_transactional=is_transactional,
    )


def produce(
    client: RawClient,
    topic: str | uuid.UUID,
    data: bytearray,
    *,
    partition: int = 0,
    acks: int = 1,
    version: int = 11,
) -> Any:
    named = {"topic_id": topic} if isinstance(topic, uuid.UUID) else {"name": topic}
    response = client.ask(
        ProduceRequest(
            transactional_id=None,
            acks=acks,
            timeout_ms=5000,
            topic_data=[
                ProduceTopicData(
                    **named, partition_data=[ProducePartitionData(index=partition, records=data)]
                )
            ],
        ),
        version,
    )
    result = response.responses[0].partition_responses[0]
    assert isinstance(result, Message)
    return result


def repeat(client: RawClient, topic: str | uuid.UUID, **options: int) -> None:
    for offset in range(REPEATED):
        result = produce(client, topic, batch(b"v"), **options)
        assert (result.error_code, result.base_offset) == (0, offset)


def topic_id(client: RawClient, name: str) -> uuid.UUID:
    asked = [MetadataRequestTopic(name=name, topic_id=uuid.UUID(int=0))]
    answer = client.ask(
        MetadataRequest(
            topics=asked, allow_auto_topic_creation=False, include_topic_authorized_operations=False
        ),
        12,
    )
    found: uuid.UUID = answer.topics[0].topic_id
    return found


@pytest.mark.skipif(receiving.COMPILED is None, reason="the receiver is not compiled")
@pytest.mark.parametrize(("connected", "is_expected"), [(Connection, True), (TlsConnection, False)])
def test_the_receiver_expects_nothing_that_is_encrypted(
    connected: type[Connection], is_expected: bool
) -> None:
    out = bytearray()
    write_request_header(out, RequestHeader(ProduceRequest.api.key, 11, 1, "app"))
    data = ProducePartitionData(index=0, records=bytes(batch(b"v")))
    topics = [ProduceTopicData(name="orders", partition_data=[data])]
    request_writer(ProduceRequest, 11)(
        out, ProduceRequest(transactional_id=None, acks=1, timeout_ms=5000, topic_data=topics)
    )
    cursor = Cursor(memoryview(out))
    header = read_request_header(cursor)
    repeated = repeated_produce(memoryview(out), header, read_produce_request(cursor, 11))
    assert repeated is not None
    terms = SimpleNamespace(refusal=None, answers_at_once=True, write_terms=lambda **asked: terms)
    partition = SimpleNamespace(log=SimpleNamespace(config=SimpleNamespace(compression_type=None)))
    partitions = SimpleNamespace(
        find=lambda name, index: partition, generation=SimpleNamespace(number=1)
    )
    parts: Any = SimpleNamespace(
        node=SimpleNamespace(partitions=partitions),
        admissions=SimpleNamespace(of=lambda connection, partition: terms),
    )
    connection = connected.__new__(connected)
    shortcut = repeated_produces.repeated_shortcut(parts, connection, repeated, [0])
    assert (shortcut.expected is not None) is is_expected


def fetched_end(client: RawClient, topic: str, partition: int) -> int:
    answer = client.ask(
        ListOffsetsRequest(
            replica_id=-1,
            isolation_level=0,
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=partition, current_leader_epoch=-1, timestamp=-1
                        )
                    ],
                )
            ],
        ),
        7,
    )
    end: int = answer.topics[0].partitions[0].offset
    return end


@pytest.mark.parametrize("acks", [1, -1])
def test_offsets_go_on(client: RawClient, topic: str, acks: int) -> None:
    repeat(client, topic, acks=acks)
    result = produce(client, topic, batch(b"a", b"b"), acks=acks)
    assert (result.error_code, result.base_offset) == (0, REPEATED)
    assert produce(client, topic, batch(b"c"), acks=acks).base_offset == REPEATED + 2


def test_topics_by_id(client: RawClient, topic: str) -> None:
    repeat(client, topic_id(client, topic), version=13)
    assert fetched_end(client, topic, 0) == REPEATED


def test_another_partition_is_another_request(client: RawClient, topic: str) -> None:
    repeat(client, topic)
    assert produce(client, topic, batch(b"v"), partition=1).base_offset == 0
    assert produce(client, topic, batch(b"v")).base_offset == REPEATED
    assert fetched_end(client, topic, 1) == 1


def produce_to_both(
    client: RawClient, topic: str, first: bytearray, second: bytearray, *, acks: int = -1
) -> list[tuple[int, int]]:
    """Error and base offset of each, in one request."""
    data = [ProducePartitionData(index=i, records=b) for i, b in enumerate((first, second))]
    response = client.ask(
        ProduceRequest(
            transactional_id=None,
            acks=acks,
            timeout_ms=5000,
            topic_data=[ProduceTopicData(name=topic, partition_data=data)],
        ),
        11,
    )
    results = response.responses[0].partition_responses
    assert [result.index for result in results] == [0, 1]
    return [(result.error_code, result.base_offset) for result in results]


@pytest.mark.parametrize("acks", [1, -1])
def test_several_partitions_in_one_request_each_go_on(
    client: RawClient, topic: str, acks: int
) -> None:
    for offset in range(REPEATED + 1):
        found = produce_to_both(client, topic, batch(b"v"), batch(b"a", b"b"), acks=acks)
        assert found == [(0, offset), (0, 2 * offset)]


def test_partitions_in_turn_each_go_on(client: RawClient, topic: str) -> None:
    for offset in range(2 * REPEATED):
        for partition in (0, 1):
            result = produce(client, topic, batch(b"v"), partition=partition)
            assert (result.error_code, result.base_offset) == (0, offset)


def test_a_client_of_many_partitions_is_known_by_some_at_a_time(
    client: RawClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeated_produces, "TARGETS_MAX", 1)
    for offset in range(REPEATED + 1):
        assert produce_to_both(client, topic, batch(b"v"), batch(b"v")) == [(0, offset)] * 2
    for offset in range(REPEATED + 1, REPEATED + 4):
        for partition in (0, 1):
            assert produce(client, topic, batch(b"v"), partition=partition).base_offset == offset


def test_one_bad_batch_does_not_keep_the_others_out(client: RawClient, topic: str) -> None:
    damaged = batch(b"v")
    damaged[-1] ^= 1
    for offset in range(REPEATED + 1):
        found = produce_to_both(client, topic, bytearray(damaged), batch(b"v"))
        assert found == [(KafkaCode.CORRUPT_MESSAGE, -1), (0, offset)]
    assert fetched_end(client, topic, 0) == 0


def test_sequence_numbers_are_checked_in_repetitions(client: RawClient, topic: str) -> None:
    def numbered(sequence: int) -> bytearray:
        record = Record(0, int(time.time() * 1000), None, b"v", [])
        return build_batch(
            [record], base_offset=0, producer_id=77, producer_epoch=0, base_sequence=sequence
        )

    for sequence in range(REPEATED + 1):
        found = produce_to_both(client, topic, numbered(sequence), batch(b"v"))
        assert found == [(0, sequence), (0, sequence)]
    # A retry gets the first answer; a gap is refused, and the other partition is written.
    again = produce_to_both(client, topic, numbered(REPEATED), batch(b"v"))
    assert again == [(0, REPEATED), (0, REPEATED + 1)]
    gap = produce_to_both(client, topic, numbered(REPEATED + 9), batch(b"v"))
    assert gap == [(KafkaCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1), (0, REPEATED + 2)]
    assert fetched_end(client, topic, 0) == REPEATED + 1


def test_a_bad_batch_is_refused_as_ever(client: RawClient, topic: str) -> None:
    repeat(client, topic)
    damaged = batch(b"v")
    damaged[-1] ^= 1
    assert produce(client, topic, damaged).error_code == KafkaCode.CORRUPT_MESSAGE
    assert produce(client, topic, batch(b"v")).base_offset == REPEATED


def test_a_transactional_batch_still_needs_a_transaction(client: RawClient, topic: str) -> None:
    repeat(client, topic)
    result = produce(client, topic, batch(b"v", is_transactional=True))
    assert result.error_code == KafkaCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert fetched_end(client, topic, 0) == REPEATED


def test_a_topic_that_was_deleted_is_unknown_and_made_again_starts_at_0(
    client: RawClient, broker: Broker, topic: str
) -> None:
    repeat(client, topic)
    broker.delete_topic(topic)
    assert produce(client, topic, batch(b"v")).error_code == KafkaCode.UNKNOWN_TOPIC_OR_PARTITION
    broker.create_topic(topic)
    assert produce(client, topic, batch(b"v")).base_offset == 0


def test_a_codec_that_the_topic_is_given_is_used(
    client: RawClient, broker: Broker, topic: str
) -> None:
    repeat(client, topic)
    client.ask(
        IncrementalAlterConfigsRequest(
            resources=[
                IncrementalAlterConfigsResource(
                    resource_type=2,
                    resource_name=topic,
                    configs=[
                        IncrementallyAlterableConfig(
                            name="compression.type", config_operation=0, value="lz4"
                        )
                    ],
                )
            ],
            validate_only=False,
        ),
        1,
    )
    assert produce(client, topic, batch(b"v" * 5000)).base_offset == REPEATED
    asked = client.ask(
        FetchRequest(
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[
                FetchTopic(
                    topic=topic,
                    partitions=[
                        FetchPartition(
                            partition=0,
                            current_leader_epoch=-1,
                            fetch_offset=REPEATED,
                            last_fetched_epoch=-1,
                            log_start_offset=-1,
                            partition_max_bytes=1 << 20,
                        )
                    ],
                )
            ],
            forgotten_topics_data=[],
            rack_id="",
        ),
        12,
    )
    assert len(asked.responses[0].partitions[0].records) < 1000


def test_many_clients_at_once_all_get_their_answers(broker: Broker, topic: str) -> None:
    clients = [RawClient(broker.bootstrap) for _ in range(50)]
    try:
        for _ in range(REPEATED + 1):
            for one in clients:
                one.send(
                    ProduceRequest(
                        transactional_id=None,
                        acks=1,
                        timeout_ms=5000,
                        topic_data=[
                            ProduceTopicData(
                                name=topic,
                                partition_data=[ProducePartitionData(index=0, records=batch(b"v"))],
                            )
                        ],
                    ),
                    11,
                )
            answers = [one.receive(ProduceRequest, 11) for one in clients]
            results = [answer.responses[0].partition_responses[0] for answer in answers]
            assert {result.error_code for result in results} == {0}
            assert len({result.base_offset for result in results}) == len(clients)
    finally:
        for one in clients:
            one.sock.close()
