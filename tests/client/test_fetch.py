"""What followers and readers send and get, against the codec of the node's side."""

import uuid

import pytest

from millstream.client.fetch import (
    BY_FOLLOWERS,
    BY_ID,
    BY_NAME,
    FetchLimits,
    RefusedFetch,
    read_fetched,
    write_fetch,
)
from millstream.errors import KafkaCode
from millstream.wire.cursor import Cursor
from millstream.wire.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchResult,
    FetchTopicResult,
    read_fetch_request,
    write_fetch_response,
)

TOPIC, OTHER = uuid.UUID(int=7), uuid.UUID(int=8)


def test_the_leader_reads_what_a_follower_writes() -> None:
    out = bytearray()
    first = FetchPartition(0, 100, 1 << 20, 7, 5, 3)
    second = FetchPartition(4, 0, 1 << 20, 2, -1, 0)
    write_fetch(
        out,
        BY_FOLLOWERS,
        [(TOPIC, [first, second]), (OTHER, [second])],
        FetchLimits(500, 1, 10 << 20),
        replica=(3, 41),
    )
    cursor = Cursor(memoryview(out))
    request = read_fetch_request(cursor, BY_FOLLOWERS)
    assert cursor.position == len(out)
    assert (request.replica_id, request.replica_epoch) == (3, 41)
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (500, 1, 10 << 20)
    assert (request.session_id, request.session_epoch) == (0, -1)
    assert [(t.topic_id, t.partitions) for t in request.topics] == [
        (TOPIC, [first, second]),
        (OTHER, [second]),
    ]


@pytest.mark.parametrize("version", [BY_NAME, BY_ID])
def test_a_node_reads_what_a_reader_writes(version: int) -> None:
    out = bytearray()
    wanted = FetchPartition(3, 100, 1 << 20)
    topic = TOPIC if version == BY_ID else "orders"
    limits = FetchLimits(500, 1, 10 << 20, isolation_level=1)
    write_fetch(out, version, [(topic, [wanted])], limits)
    cursor = Cursor(memoryview(out))
    request = read_fetch_request(cursor, version)
    assert cursor.position == len(out)
    assert (request.replica_id, request.isolation_level) == (-1, 1)
    [found] = request.topics
    assert (found.topic_id if version == BY_ID else found.name) == topic
    assert found.partitions == [wanted]


def answer(
    *results: FetchResult, version: int = BY_FOLLOWERS, code: int = KafkaCode.NONE
) -> Cursor:
    pieces = write_fetch_response(
        bytearray(),
        version,
        code=code,
        session_id=0,
        topics=[FetchTopicResult("orders", TOPIC, list(results))],
    )
    return Cursor(memoryview(b"".join(bytes(piece) for piece in pieces)))  # type: ignore[call-overload]


def test_a_follower_reads_what_the_leader_writes() -> None:
    cursor = answer(
        FetchResult(0, KafkaCode.NONE, 90, 90, 3, records=b"records", records_bytes=7),
        FetchResult(1, KafkaCode.NONE, 90, 90, 3, diverging_epoch=5, diverging_offset=77),
        FetchResult(2, KafkaCode.FENCED_LEADER_EPOCH, leader_id=2, leader_epoch=9),
    )
    records, diverging, refused = list(read_fetched(cursor, BY_FOLLOWERS))
    assert cursor.position == cursor.end
    assert (records.topic, records.index, records.code) == (TOPIC, 0, 0)
    assert (records.high_watermark, records.log_start_offset) == (90, 3)
    assert bytes(records.records) == b"records"
    assert records.diverging_offset == -1
    assert (diverging.diverging_epoch, diverging.diverging_offset) == (5, 77)
    assert refused.code == KafkaCode.FENCED_LEADER_EPOCH
    assert not refused.records


@pytest.mark.parametrize("version", [BY_NAME, BY_ID])
def test_a_reader_learns_which_transactions_were_aborted(version: int) -> None:
    aborted = [AbortedTransaction(7, 11), AbortedTransaction(8, 12)]
    result = FetchResult(0, KafkaCode.NONE, 90, 80, 3, aborted=aborted)
    cursor = answer(result, version=version)
    [found] = read_fetched(cursor, version)
    assert cursor.position == cursor.end
    assert found.topic == (TOPIC if version == BY_ID else "orders")
    assert found.aborted == [(7, 11), (8, 12)]


def test_a_refusal_as_a_whole_is_an_error() -> None:
    with pytest.raises(RefusedFetch, match="error 70") as refused:
        list(read_fetched(answer(code=70), BY_FOLLOWERS))
    assert refused.value.code == 70
