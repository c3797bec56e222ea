"""A follower's fetch, against the codec of the leader's side."""

import uuid

import pytest

from millstream.errors import KafkaCode, ProtocolError
from millstream.wire.cursor import Cursor
from millstream.wire.fetch import (
    FetchPartition,
    FetchResult,
    FetchTopicResult,
    read_fetch_request,
    write_fetch_response,
)
from millstream.wire.replica_fetch import VERSION, read_replica_fetched, write_replica_fetch

TOPIC, OTHER = uuid.UUID(int=7), uuid.UUID(int=8)


def test_the_leader_reads_what_a_follower_writes() -> None:
    out = bytearray()
    first = FetchPartition(0, 100, 1 << 20, 7, 5, 3)
    second = FetchPartition(4, 0, 1 << 20, 2, -1, 0)
    write_replica_fetch(
        out,
        [(TOPIC, [first, second]), (OTHER, [second])],
        replica_id=3,
        broker_epoch=41,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=10 << 20,
    )
    cursor = Cursor(memoryview(out))
    request = read_fetch_request(cursor, VERSION)
    assert cursor.position == len(out)
    assert (request.replica_id, request.replica_epoch) == (3, 41)
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (500, 1, 10 << 20)
    assert (request.session_id, request.session_epoch) == (0, -1)
    assert [(t.topic_id, t.partitions) for t in request.topics] == [
        (TOPIC, [first, second]),
        (OTHER, [second]),
    ]


def answer(*results: FetchResult, code: int = KafkaCode.NONE) -> Cursor:
    pieces = write_fetch_response(
        bytearray(),
        VERSION,
        code=code,
        session_id=0,
        topics=[FetchTopicResult("", TOPIC, list(results))],
    )
    return Cursor(memoryview(b"".join(bytes(piece) for piece in pieces)))  # type: ignore[call-overload]


def test_a_follower_reads_what_the_leader_writes() -> None:
    cursor = answer(
        FetchResult(0, KafkaCode.NONE, 90, 90, 3, records=b"records", records_bytes=7),
        FetchResult(1, KafkaCode.NONE, 90, 90, 3, diverging_epoch=5, diverging_offset=77),
        FetchResult(2, KafkaCode.FENCED_LEADER_EPOCH, leader_id=2, leader_epoch=9),
    )
    records, diverging, refused = list(read_replica_fetched(cursor))
    assert cursor.position == cursor.end
    assert (records.topic_id, records.index, records.code) == (TOPIC, 0, 0)
    assert (records.high_watermark, records.log_start_offset) == (90, 3)
    assert bytes(records.records) == b"records"
    assert records.diverging_offset == -1
    assert (diverging.diverging_epoch, diverging.diverging_offset) == (5, 77)
    assert refused.code == KafkaCode.FENCED_LEADER_EPOCH
    assert not refused.records


def test_an_answer_to_nothing_is_an_error() -> None:
    with pytest.raises(ProtocolError, match="error 70"):
        list(read_replica_fetched(answer(code=70)))
