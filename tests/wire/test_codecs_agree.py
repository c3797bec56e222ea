"""The hand-written codecs against the general one, in every version.

Covers wire.
"""

import uuid

import pytest

from millstream.errors import KafkaCode
from millstream.model import NO_TOPIC_ID
from millstream.wire import fetch, offset_commit, produce
from millstream.wire.apis.fetch import (
    FetchForgottenTopic,
    FetchPartition,
    FetchReplicaState,
    FetchRequest,
    FetchTopic,
)
from millstream.wire.apis.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from millstream.wire.apis.produce import ProducePartitionData, ProduceRequest, ProduceTopicData
from millstream.wire.codec import (
    request_writer,
    response_reader,
)
from millstream.wire.cursor import Cursor
from millstream.wire.message import Api

TOPIC_ID = uuid.UUID("11111111-2222-3333-4444-555555555555")


def versions(api: Api) -> range:
    return range(api.min_version, api.max_version + 1)


@pytest.mark.parametrize("version", versions(ProduceRequest.api))
def test_produce_request_reads_as_the_general_codec_wrote_it(version: int) -> None:
    body = bytearray()
    request_writer(ProduceRequest, version)(
        body,
        ProduceRequest(
            transactional_id="tx",
            acks=-1,
            timeout_ms=1500,
            topic_data=[
                ProduceTopicData(
                    name="orders",
                    topic_id=TOPIC_ID,
                    partition_data=[
                        ProducePartitionData(index=3, records=b"abc"),
                        ProducePartitionData(index=4, records=None),
                    ],
                )
            ],
        ),
    )
    cursor = Cursor(memoryview(body))
    request = produce.read_produce_request(cursor, version)
    assert cursor.position == len(body)
    assert (request.transactional_id, request.acks, request.timeout_ms) == ("tx", -1, 1500)
    [topic] = request.topics
    assert topic.name == ("" if version >= 13 else "orders")
    assert topic.topic_id == (TOPIC_ID if version >= 13 else NO_TOPIC_ID)
    assert topic.partitions == [(3, b"abc"), (4, None)]


@pytest.mark.parametrize("version", versions(ProduceRequest.api))
def test_produce_response_is_read_by_the_general_codec(version: int) -> None:
    out = bytearray()
    results = [
        produce.ProduceResult(3, 0, 77, 1234, 5),
        produce.ProduceResult(
            4, 87, record_errors=[(2, "no key")], message="bad", leader_id=1, leader_epoch=9
        ),
    ]
    produce.write_produce_response(
        out, version, [(produce.ProduceTopic("orders", TOPIC_ID, []), results)]
    )
    cursor = Cursor(memoryview(out))
    response = response_reader(ProduceRequest, version)(cursor)
    assert cursor.position == len(out)
    good, bad = response.responses[0].partition_responses
    assert (good.index, good.error_code, good.base_offset, good.log_append_time_ms) == (
        3,
        0,
        77,
        1234,
    )
    assert bad.error_code == 87
    if version >= 5:
        assert good.log_start_offset == 5
    if version >= 8:
        assert bad.record_errors[0].batch_index == 2
        assert bad.error_message == "bad"
    if version >= 10:
        assert (bad.current_leader.leader_id, bad.current_leader.leader_epoch) == (1, 9)


@pytest.mark.parametrize("version", versions(FetchRequest.api))
def test_fetch_request_reads_as_the_general_codec_wrote_it(version: int) -> None:
    body = bytearray()
    request_writer(FetchRequest, version)(
        body,
        FetchRequest(
            replica_id=-1,
            replica_state=FetchReplicaState(replica_id=7, replica_epoch=8),
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1000,
            isolation_level=1,
            session_id=12,
            session_epoch=13,
            topics=[
                FetchTopic(
                    topic="orders",
                    topic_id=TOPIC_ID,
                    partitions=[
                        FetchPartition(
                            partition=2,
                            current_leader_epoch=4,
                            fetch_offset=99,
                            last_fetched_epoch=3,
                            log_start_offset=1,
                            partition_max_bytes=555,
                        )
                    ],
                )
            ],
            forgotten_topics_data=[
                FetchForgottenTopic(topic="old", topic_id=TOPIC_ID, partitions=[1, 2])
            ],
            rack_id="r1",
        ),
    )
    cursor = Cursor(memoryview(body))
    request = fetch.read_fetch_request(cursor, version)
    assert cursor.position == len(body)
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (500, 1, 1000)
    [topic] = request.topics
    [partition] = topic.partitions
    assert (partition.index, partition.offset, partition.max_bytes) == (2, 99, 555)
    assert topic.topic_id == (TOPIC_ID if version >= 13 else NO_TOPIC_ID)
    assert topic.name == ("" if version >= 13 else "orders")
    if version >= 7:
        assert (request.session_id, request.session_epoch) == (12, 13)
        assert request.forgotten[0].partitions == [1, 2]
    if version >= 9:
        assert partition.current_leader_epoch == 4
    if version >= 11:
        assert request.rack_id == "r1"
    if version >= 12:
        assert partition.last_fetched_epoch == 3
    if version >= 15:
        assert (request.replica_id, request.replica_epoch) == (7, 8)


@pytest.mark.parametrize("version", versions(FetchRequest.api))
def test_fetch_response_is_read_by_the_general_codec(version: int) -> None:
    out = bytearray()
    pieces = fetch.write_fetch_response(
        out,
        version,
        code=0,
        session_id=42,
        topics=[
            fetch.FetchTopicResult(
                "orders",
                TOPIC_ID,
                [
                    fetch.FetchResult(
                        0, 0, 10, 9, 1, records=b"RECORDS", records_bytes=7, aborted=[]
                    ),
                    fetch.FetchResult(
                        1, 6, aborted=[fetch.AbortedTransaction(5, 6)], leader_id=3, leader_epoch=4
                    ),
                    fetch.FetchResult(2, 0, diverging_epoch=2, diverging_offset=8),
                ],
            )
        ],
    )
    assert pieces[1] == b"RECORDS"
    body = b"".join(bytes(piece) for piece in pieces)  # type: ignore[call-overload]
    cursor = Cursor(memoryview(body))
    response = response_reader(FetchRequest, version)(cursor)
    assert cursor.position == len(body)
    first, second, third = response.responses[0].partitions
    assert first.records == b"RECORDS"
    assert (first.high_watermark, first.last_stable_offset) == (10, 9)
    assert second.error_code == 6
    assert second.aborted_transactions[0].first_offset == 6
    assert third.aborted_transactions is None
    if version >= 7:
        assert response.session_id == 42
    if version >= 12:
        assert (third.diverging_epoch.epoch, third.diverging_epoch.end_offset) == (2, 8)
        assert (second.current_leader.leader_id, second.current_leader.leader_epoch) == (3, 4)


@pytest.mark.parametrize("version", versions(OffsetCommitRequest.api))
def test_offset_commit_request_reads_as_the_general_codec_wrote_it(version: int) -> None:
    body = bytearray()
    rows = [
        OffsetCommitPartition(
            partition_index=index,
            committed_offset=1 << 40,
            committed_leader_epoch=5,
            committed_metadata=metadata,
        )
        for index, metadata in ((3, "nöte"), (4, None))
    ]
    request_writer(OffsetCommitRequest, version)(
        body,
        OffsetCommitRequest(
            group_id="readers",
            generation_id_or_member_epoch=12,
            member_id="member-1",
            group_instance_id="static",
            retention_time_ms=86_400_000,
            topics=[OffsetCommitTopic(name="orders", topic_id=TOPIC_ID, partitions=rows)],
        ),
    )
    cursor = Cursor(memoryview(body))
    request = offset_commit.read_offset_commit_request(cursor, version)
    assert cursor.position == len(body)
    assert (request.group_id, request.generation, request.member_id) == ("readers", 12, "member-1")
    assert request.instance_id == ("static" if version >= 7 else None)
    assert request.retention_ms == (86_400_000 if version <= 4 else -1)
    [topic] = request.topics
    assert topic.name == ("" if version >= 10 else "orders")
    assert topic.topic_id == (TOPIC_ID if version >= 10 else NO_TOPIC_ID)
    epoch = 5 if version >= 6 else -1
    assert topic.partitions == [
        offset_commit.OffsetToCommit(3, 1 << 40, epoch, "nöte"),
        offset_commit.OffsetToCommit(4, 1 << 40, epoch, ""),
    ]


@pytest.mark.parametrize("version", versions(OffsetCommitRequest.api))
def test_offset_commit_response_is_read_by_the_general_codec(version: int) -> None:
    out = bytearray()
    partitions = [offset_commit.OffsetToCommit(index, 7, -1, "") for index in (3, 4)]
    topic = offset_commit.OffsetCommitTopic("orders", TOPIC_ID, partitions)
    codes = [[KafkaCode.NONE, KafkaCode.UNKNOWN_MEMBER_ID]]
    offset_commit.write_offset_commit_response(out, version, [topic], codes)
    cursor = Cursor(memoryview(out))
    response = response_reader(OffsetCommitRequest, version)(cursor)
    assert cursor.position == len(out)
    [answered] = response.topics
    if version >= 10:
        assert answered.topic_id == TOPIC_ID
    else:
        assert answered.name == "orders"
    assert [(row.partition_index, row.error_code) for row in answered.partitions] == [
        (3, 0),
        (4, 25),
    ]
