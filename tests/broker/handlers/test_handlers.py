"""Each API over a real socket: what it answers, and the codes for what it refuses."""

import socket
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.errors import KafkaCode
from millstream.model import NO_TOPIC_ID, Codec, TimestampType
from millstream.records.batch import split_batches
from millstream.records.builder import build_batch
from millstream.records.records import Record, read_records
from millstream.testing import Broker
from millstream.wire.apis import APIS, ApiKey
from millstream.wire.messages import Struct
from millstream.wire.vendor import KEYS_FROM
from tests.support.raw_client import RawClient


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(settings={"auto.create.topics.enable": "true"}) as running:
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


def batch(
    *values: bytes,
    keys: list[bytes | None] | None = None,
    timestamp_ms: int | None = None,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    codec: Codec = Codec.NONE,
) -> bytearray:
    now_ms = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
    records = [
        Record(i, now_ms, keys[i] if keys else None, value, []) for i, value in enumerate(values)
    ]
    return build_batch(
        records,
        base_offset=0,
        codec=codec,
        timestamp_type=TimestampType.CREATE_TIME,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def produce(
    client: RawClient,
    topic: str,
    data: bytes | bytearray | None,
    *,
    partition: int = 0,
    acks: int = 1,
    version: int = 11,
) -> Struct:
    response = client.ask(
        ApiKey.PRODUCE,
        version,
        transactional_id=None,
        acks=acks,
        timeout_ms=5000,
        topic_data=[
            Struct(name=topic, partition_data=[Struct(index=partition, records=data)]),
        ],
    )
    result = response.responses[0].partition_responses[0]
    assert isinstance(result, Struct)
    return result


def fetch(
    client: RawClient, topic: str, offset: int, *, version: int = 11, **changes: int
) -> Struct:
    fields: dict[str, int] = {
        "partition": 0,
        "current_leader_epoch": -1,
        "last_fetched_epoch": -1,
        "partition_max_bytes": 1 << 20,
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 24,
        **changes,
    }
    response = client.ask(
        ApiKey.FETCH,
        version,
        replica_id=-1,
        max_wait_ms=fields["max_wait_ms"],
        min_bytes=fields["min_bytes"],
        max_bytes=fields["max_bytes"],
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[
            Struct(
                topic=topic,
                partitions=[
                    Struct(
                        partition=fields["partition"],
                        current_leader_epoch=fields["current_leader_epoch"],
                        fetch_offset=offset,
                        last_fetched_epoch=fields["last_fetched_epoch"],
                        log_start_offset=-1,
                        partition_max_bytes=fields["partition_max_bytes"],
                    )
                ],
            )
        ],
        forgotten_topics_data=[],
        rack_id="",
    )
    result = response.responses[0].partitions[0]
    assert isinstance(result, Struct)
    return result


def values_in(result: Struct) -> list[bytes | None]:
    return [
        record.value
        for found in split_batches(memoryview(bytes(result.records)))
        for record in read_records(found, limit_bytes=1 << 20)
    ]


def test_every_listed_api_is_loadable_and_listed_once(client: RawClient) -> None:
    response = client.ask(
        ApiKey.API_VERSIONS, 4, client_software_name="raw", client_software_version="1"
    )
    listed = {key.api_key: (key.min_version, key.max_version) for key in response.api_keys}
    assert len(listed) == len(response.api_keys)
    assert listed == {
        k: (api.lowest_listed, api.highest_listed) for k, api in APIS.items() if k < KEYS_FROM
    }
    assert listed[ApiKey.PRODUCE][0] == 0


def test_a_version_of_api_versions_from_the_future_is_answered_in_version_0(
    client: RawClient,
) -> None:
    client.send_frame(b"\x00\x12\x00\x63" + b"\x00\x00\x00\x07" + b"\xff\xff")
    answer = client.receive_frame()
    assert answer[:6] == b"\x00\x00\x00\x07\x00\x23"
    count = int.from_bytes(answer[6:10], "big")
    assert count == len([k for k in APIS if k < KEYS_FROM])


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_produce_versions_are_refused_with_a_code(
    client: RawClient, topic: str, version: int
) -> None:
    from millstream.wire import output

    body = bytearray()
    for number in (0, version):
        output.int16(body, number)
    output.int32(body, 1)
    output.string(body, "old")
    output.int16(body, 1)
    output.int32(body, 1000)
    output.array_count(body, 1)
    output.string(body, topic)
    output.array_count(body, 1)
    output.int32(body, 0)
    output.bytes_(body, b"whatever")
    client.send_frame(bytes(body))
    answer = client.receive_frame()
    name_end = 4 + 4 + 2 + len(topic)
    code = int.from_bytes(answer[name_end + 8 : name_end + 10], "big", signed=True)
    assert code == KafkaCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("version", range(3, 13))
def test_produce_and_fetch_give_back_what_was_sent(
    client: RawClient, topic: str, version: int
) -> None:
    result = produce(client, topic, batch(b"a", b"b"), version=version)
    assert (result.error_code, result.base_offset) == (0, 0)
    again = produce(client, topic, batch(b"c"), version=version)
    assert again.base_offset == 2
    assert values_in(fetch(client, topic, 0)) == [b"a", b"b", b"c"]
    # An offset inside a batch gets the whole batch.
    assert values_in(fetch(client, topic, 1)) == [b"a", b"b", b"c"]
    assert values_in(fetch(client, topic, 2)) == [b"c"]


def test_the_first_batch_is_whole_however_small_the_limits(client: RawClient, topic: str) -> None:
    produce(client, topic, batch(b"x" * 5000))
    produce(client, topic, batch(b"y" * 5000))
    result = fetch(client, topic, 0, partition_max_bytes=1, max_bytes=1)
    assert values_in(result) == [b"x" * 5000]


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        ("crc", KafkaCode.CORRUPT_MESSAGE),
        ("magic", KafkaCode.INVALID_RECORD),
        ("count", KafkaCode.INVALID_RECORD),
        ("control", KafkaCode.INVALID_RECORD),
        ("short", KafkaCode.INVALID_RECORD),
        ("empty", KafkaCode.INVALID_RECORD),
        ("two", KafkaCode.INVALID_RECORD),
    ],
)
def test_a_bad_batch_is_refused_and_nothing_is_appended(
    client: RawClient, topic: str, damage: str, code: KafkaCode
) -> None:
    data = bytearray(batch(b"a", b"b"))
    if damage == "crc":
        data[-1] ^= 1
    elif damage == "magic":
        data[16] = 1
    elif damage == "count":
        data[57:61] = (5).to_bytes(4, "big")
        _fix_crc(data)
    elif damage == "control":
        data[22] |= 0x20
        _fix_crc(data)
    elif damage == "short":
        del data[-3:]
    elif damage == "empty":
        data = bytearray()
    elif damage == "two":
        data += batch(b"c")
    result = produce(client, topic, data)
    assert KafkaCode(result.error_code) == code
    assert fetch(client, topic, 0).high_watermark == 0


def _fix_crc(data: bytearray) -> None:
    from crc32c import crc32c

    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")


def test_a_batch_over_max_message_bytes_is_refused(client: RawClient, broker: Broker) -> None:
    broker.create_topic("small-batches", configs={"max.message.bytes": "1000"})
    result = produce(client, "small-batches", batch(b"x" * 2000))
    assert result.error_code == KafkaCode.MESSAGE_TOO_LARGE


def test_a_record_without_key_on_a_compacted_topic_names_the_record(
    client: RawClient, broker: Broker
) -> None:
    broker.create_topic("compacted", configs={"cleanup.policy": "compact"})
    result = produce(client, "compacted", batch(b"a", b"b", b"c", keys=[b"k", None, b"k"]))
    assert result.error_code == KafkaCode.INVALID_RECORD
    assert [error.batch_index for error in result.record_errors] == [1]
    assert fetch(client, "compacted", 0).high_watermark == 0


def test_a_timestamp_too_far_ahead_is_refused(client: RawClient, topic: str) -> None:
    ahead = int(time.time() * 1000) + 2 * 3_600_000
    result = produce(client, topic, batch(b"a", timestamp_ms=ahead))
    assert result.error_code == KafkaCode.INVALID_TIMESTAMP


def test_log_append_time_is_answered_and_stored(client: RawClient, broker: Broker) -> None:
    broker.create_topic("stamped", configs={"message.timestamp.type": "LogAppendTime"})
    before = int(time.time() * 1000)
    result = produce(client, "stamped", batch(b"a", timestamp_ms=1000))
    assert result.log_append_time_ms >= before
    [found] = split_batches(memoryview(bytes(fetch(client, "stamped", 0).records)))
    assert found.max_timestamp_ms == result.log_append_time_ms
    assert found.crc_is_valid()


def test_wrong_acks_unknown_topics_and_unknown_partitions_are_refused(
    client: RawClient, topic: str
) -> None:
    assert produce(client, topic, batch(b"a"), acks=5).error_code == (
        KafkaCode.INVALID_REQUIRED_ACKS
    )
    for name, partition in (("no-such-topic", 0), (topic, 99), (topic, -1)):
        result = produce(client, name, batch(b"a"), partition=partition)
        assert result.error_code == KafkaCode.UNKNOWN_TOPIC_OR_PARTITION


def test_acks_0_gets_no_answer_and_an_error_closes_the_connection(
    broker: Broker, topic: str
) -> None:
    fields = {"transactional_id": None, "acks": 0, "timeout_ms": 1000}
    with RawClient(broker.bootstrap) as client:
        good = [Struct(name=topic, partition_data=[Struct(index=0, records=batch(b"a"))])]
        client.send(ApiKey.PRODUCE, 9, topic_data=good, **fields)
        # The next answer is for the next question.
        assert fetch(client, topic, 0).high_watermark == 1
        bad = [Struct(name=topic, partition_data=[Struct(index=77, records=batch(b"a"))])]
        client.send(ApiKey.PRODUCE, 9, topic_data=bad, **fields)
        assert client.is_closed_by_peer()


def test_an_idempotent_retry_gets_the_first_offset_and_a_gap_is_refused(
    client: RawClient, topic: str
) -> None:
    given = client.ask(
        ApiKey.INIT_PRODUCER_ID,
        4,
        transactional_id=None,
        transaction_timeout_ms=1000,
        producer_id=-1,
        producer_epoch=-1,
    )
    assert given.error_code == 0

    def numbered(sequence: int, *values: bytes) -> bytearray:
        return batch(
            *values, producer_id=given.producer_id, epoch=given.producer_epoch, sequence=sequence
        )

    first = produce(client, topic, numbered(0, b"a", b"b"), acks=-1)
    second = produce(client, topic, numbered(2, b"c"), acks=-1)
    retry = produce(client, topic, numbered(0, b"a", b"b"), acks=-1)
    assert (first.base_offset, second.base_offset, retry.base_offset) == (0, 2, 0)
    assert retry.error_code == 0
    gap = produce(client, topic, numbered(9, b"d"), acks=-1)
    assert gap.error_code == KafkaCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert values_in(fetch(client, topic, 0)) == [b"a", b"b", b"c"]


def test_version_6_is_read_and_two_phase_commit_refused(client: RawClient) -> None:
    fields = {
        "transactional_id": "tx-6",
        "transaction_timeout_ms": 1000,
        "producer_id": -1,
        "producer_epoch": -1,
        "keep_prepared_txn": False,
    }
    client.ask(ApiKey.FIND_COORDINATOR, 4, key_type=1, coordinator_keys=["tx-6"])
    plain = client.ask(ApiKey.INIT_PRODUCER_ID, 6, enable2_pc=False, **fields)
    assert (plain.error_code, plain.ongoing_txn_producer_id) == (0, -1)
    refused = client.ask(ApiKey.INIT_PRODUCER_ID, 6, enable2_pc=True, **fields)
    assert refused.error_code == KafkaCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_producer_ids_are_never_given_twice(client: RawClient) -> None:
    fields = {
        "transactional_id": None,
        "transaction_timeout_ms": 1,
        "producer_id": -1,
        "producer_epoch": -1,
    }
    given = [client.ask(ApiKey.INIT_PRODUCER_ID, 4, **fields).producer_id for _ in range(1500)]
    assert len(set(given)) == 1500


def test_a_fetch_waits_for_min_bytes_and_is_woken_by_a_produce(broker: Broker, topic: str) -> None:
    with RawClient(broker.bootstrap) as reader, RawClient(broker.bootstrap) as writer:
        topics = [
            Struct(
                topic=topic,
                partitions=[
                    Struct(partition=0, fetch_offset=0, partition_max_bytes=1 << 20),
                ],
            )
        ]
        reader.send(
            ApiKey.FETCH,
            4,
            replica_id=-1,
            # Longer than this client waits for an answer.
            max_wait_ms=60_000,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=0,
            topics=topics,
        )
        produce(writer, topic, batch(b"wake up"))
        result = reader.receive(ApiKey.FETCH, 4).responses[0].partitions[0]
        assert values_in(result) == [b"wake up"]


def test_a_fetch_is_woken_by_a_produce_that_came_in_the_same_packet(
    client: RawClient, topic: str
) -> None:
    wanted = [Struct(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)]
    sent = [Struct(index=0, records=batch(b"wake up"))]
    client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
    client.send(
        ApiKey.FETCH,
        4,
        replica_id=-1,
        max_wait_ms=60_000,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=0,
        topics=[Struct(topic=topic, partitions=wanted)],
    )
    client.send(
        ApiKey.PRODUCE,
        3,
        transactional_id=None,
        acks=1,
        timeout_ms=1000,
        topic_data=[Struct(name=topic, partition_data=sent)],
    )
    client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
    result = client.receive(ApiKey.FETCH, 4).responses[0].partitions[0]
    assert values_in(result) == [b"wake up"]


def test_fetch_outside_the_log_and_with_wrong_epochs_is_refused(
    client: RawClient, topic: str
) -> None:
    produce(client, topic, batch(b"a"))
    assert fetch(client, topic, 2).error_code == KafkaCode.OFFSET_OUT_OF_RANGE
    assert fetch(client, topic, -1).error_code == KafkaCode.OFFSET_OUT_OF_RANGE
    epoch = _leader_epoch(client, topic)
    assert fetch(client, topic, 0, current_leader_epoch=epoch).error_code == 0
    ahead = fetch(client, topic, 0, current_leader_epoch=epoch + 1)
    assert ahead.error_code == KafkaCode.UNKNOWN_LEADER_EPOCH


def _leader_epoch(client: RawClient, topic: str) -> int:
    response = client.ask(
        ApiKey.METADATA,
        12,
        topics=[Struct(name=topic, topic_id=NO_TOPIC_ID)],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    epoch = response.topics[0].partitions[0].leader_epoch
    assert isinstance(epoch, int)
    return epoch


def test_a_restart_raises_the_leader_epoch_and_fences_the_old_one(tmp_path: Path) -> None:
    running = Broker(data_dir=tmp_path / "data")
    running.start()
    running.create_topic("t")
    with RawClient(running.bootstrap) as client:
        produce(client, "t", batch(b"a", b"b"))
        old = _leader_epoch(client, "t")
    running.stop()
    running.start()
    try:
        with RawClient(running.bootstrap) as client:
            assert _leader_epoch(client, "t") > old
            fenced = fetch(client, "t", 0, current_leader_epoch=old)
            assert fenced.error_code == KafkaCode.FENCED_LEADER_EPOCH
            end = client.ask(
                ApiKey.OFFSET_FOR_LEADER_EPOCH,
                4,
                replica_id=-1,
                topics=[
                    Struct(
                        topic="t",
                        partitions=[Struct(partition=0, current_leader_epoch=-1, leader_epoch=old)],
                    )
                ],
            )
            assert end.topics[0].partitions[0].end_offset == 2
    finally:
        running.stop()


def test_metadata_by_id_by_name_and_for_nothing(client: RawClient, topic: str) -> None:
    def ask(topics: list[Struct] | None) -> Struct:
        return client.ask(
            ApiKey.METADATA,
            12,
            topics=topics,
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )

    found = ask([Struct(name=topic, topic_id=NO_TOPIC_ID)]).topics[0]
    by_id = ask([Struct(name=None, topic_id=found.topic_id)]).topics[0]
    assert by_id.name == topic
    unknown = ask([Struct(name=None, topic_id=uuid.uuid4())]).topics[0]
    assert unknown.error_code == KafkaCode.UNKNOWN_TOPIC_ID
    bad = ask([Struct(name="no/slash", topic_id=NO_TOPIC_ID)]).topics[0]
    assert bad.error_code == KafkaCode.INVALID_TOPIC_EXCEPTION
    assert ask([]).topics == []
    assert topic in [t.name for t in ask(None).topics]


def test_an_unknown_topic_is_created_when_allowed_and_at_once_usable(client: RawClient) -> None:
    name = f"auto-{uuid.uuid4().hex[:8]}"
    response = client.ask(ApiKey.METADATA, 1, topics=[Struct(name=name)])
    assert response.topics[0].error_code == 0
    assert produce(client, name, batch(b"a")).error_code == 0


def test_an_internal_topic_that_a_client_names_is_as_its_coordinator_needs_it(
    client: RawClient,
) -> None:
    names = ["__consumer_offsets", "__transaction_state"]
    client.ask(ApiKey.METADATA, 1, topics=[Struct(name=name) for name in names])
    described = client.ask(
        ApiKey.DESCRIBE_CONFIGS,
        4,
        resources=[
            Struct(resource_type=2, resource_name=name, configuration_keys=["cleanup.policy"])
            for name in names
        ],
        include_synonyms=False,
        include_documentation=False,
    )
    assert [each.configs[0].value for each in described.results] == ["compact", "compact"]


def test_the_documentation_of_an_option_says_that_it_has_no_effect(
    client: RawClient, topic: str
) -> None:
    described = client.ask(
        ApiKey.DESCRIBE_CONFIGS,
        4,
        resources=[
            Struct(resource_type=2, resource_name=topic, configuration_keys=[name])
            for name in ("preallocate", "segment.bytes")
        ],
        include_synonyms=False,
        include_documentation=True,
    )
    without_effect, works = [each.configs[0].documentation for each in described.results]
    assert without_effect.endswith("Here: accepted, no effect.")
    assert "no effect" not in works


def test_list_offsets_by_ends_and_by_time(client: RawClient, topic: str) -> None:
    now_ms = int(time.time() * 1000)
    for age_ms in (3000, 2000, 1000):
        produce(client, topic, batch(b"x", timestamp_ms=now_ms - age_ms))

    def ask(timestamp: int) -> tuple[int, int]:
        response = client.ask(
            ApiKey.LIST_OFFSETS,
            7,
            replica_id=-1,
            isolation_level=0,
            topics=[
                Struct(
                    name=topic,
                    partitions=[
                        Struct(partition_index=0, current_leader_epoch=-1, timestamp=timestamp)
                    ],
                )
            ],
        )
        found = response.topics[0].partitions[0]
        assert found.error_code == 0
        return found.offset, found.timestamp

    assert ask(-2)[0] == 0
    assert ask(-1)[0] == 3
    assert ask(-3) == (2, now_ms - 1000)
    assert ask(now_ms - 2500) == (1, now_ms - 2000)
    assert ask(now_ms) == (-1, -1)
    assert ask(0) == (0, now_ms - 3000)


def test_delete_records_moves_the_start_and_refuses_what_is_not_there(
    client: RawClient, topic: str
) -> None:
    produce(client, topic, batch(b"a", b"b", b"c"))

    def delete(offset: int) -> Struct:
        response = client.ask(
            ApiKey.DELETE_RECORDS,
            2,
            topics=[Struct(name=topic, partitions=[Struct(partition_index=0, offset=offset)])],
            timeout_ms=5000,
        )
        result = response.topics[0].partitions[0]
        assert isinstance(result, Struct)
        return result

    assert delete(2).low_watermark == 2
    assert fetch(client, topic, 1).error_code == KafkaCode.OFFSET_OUT_OF_RANGE
    assert delete(99).error_code == KafkaCode.OFFSET_OUT_OF_RANGE
    assert delete(-1).low_watermark == 3


def test_fetch_sessions_send_only_what_is_new(client: RawClient, topic: str) -> None:
    produce(client, topic, batch(b"a"))

    def ask(session_id: int, epoch: int, offset: int | None) -> Struct:
        topics = []
        if offset is not None:
            partitions = [
                Struct(
                    partition=index,
                    current_leader_epoch=-1,
                    fetch_offset=offset if index == 0 else 0,
                    last_fetched_epoch=-1,
                    log_start_offset=-1,
                    partition_max_bytes=1 << 20,
                )
                for index in (0, 1)
            ]
            topics = [Struct(topic=topic, partitions=partitions)]
        return client.ask(
            ApiKey.FETCH,
            11,
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=0,
            session_id=session_id,
            session_epoch=epoch,
            topics=topics,
            forgotten_topics_data=[],
            rack_id="",
        )

    full = ask(0, 0, 0)
    assert full.session_id > 0
    assert [p.partition_index for p in full.responses[0].partitions] == [0, 1]
    assert ask(full.session_id, 1, 1).responses == []
    produce(client, topic, batch(b"b"))
    news = ask(full.session_id, 2, None)
    assert [p.partition_index for p in news.responses[0].partitions] == [0]
    assert values_in(news.responses[0].partitions[0]) == [b"b"]
    assert ask(full.session_id, 2, None).error_code == KafkaCode.INVALID_FETCH_SESSION_EPOCH
    assert ask(full.session_id + 1, 3, None).error_code == KafkaCode.FETCH_SESSION_ID_NOT_FOUND


def test_reassignments_and_elections_as_far_as_one_node_goes(client: RawClient, topic: str) -> None:
    moved = client.ask(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        0,
        timeout_ms=1000,
        topics=[
            Struct(
                name=topic,
                partitions=[
                    Struct(partition_index=0, replicas=[99]),
                    Struct(partition_index=1, replicas=None),
                ],
            )
        ],
    )
    assert [p.error_code for p in moved.responses[0].partitions] == [
        KafkaCode.INVALID_REPLICA_ASSIGNMENT,
        KafkaCode.NO_REASSIGNMENT_IN_PROGRESS,
    ]
    listed = client.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, timeout_ms=1000, topics=None)
    assert listed.topics == []
    elected = client.ask(
        ApiKey.ELECT_LEADERS,
        2,
        election_type=0,
        topic_partitions=[Struct(topic=topic, partitions=[0])],
        timeout_ms=1000,
    )
    result = elected.replica_election_results[0].partition_result[0]
    assert result.error_code == KafkaCode.ELECTION_NOT_NEEDED
