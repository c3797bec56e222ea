"""The frames are written by hand; here the broker's own codecs read them."""

import struct

import pytest

from bench import frames
from millstream.model import Codec
from millstream.records.batch import BatchView
from millstream.wire.cursor import Cursor
from millstream.wire.fetch import (
    FetchResult,
    FetchTopicResult,
    read_fetch_request,
    write_fetch_response,
)
from millstream.wire.headers import read_request_header, response_header
from millstream.wire.produce import ProduceResult, read_produce_request, write_produce_response

BATCH = frames.batch(record_bytes=100, count=3, codec=Codec.NONE, timestamp_ms=1_000)


def opened(frame: bytes) -> Cursor:
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
    return Cursor(memoryview(bytearray(frame))[4:])


def test_a_produce_frame_carries_its_batch_to_every_partition() -> None:
    load = frames.produce_load("topic", [BATCH], acks=-1, partitions=range(3))
    cursor = opened(load.frames[0])
    header = read_request_header(cursor)
    request = read_produce_request(cursor, header.version)

    assert cursor.position == cursor.end
    assert request.acks == -1
    assert request.topics[0].name == "topic"
    assert [(index, bytes(data or b"")) for index, data in request.topics[0].partitions] == [
        (index, BATCH) for index in range(3)
    ]


def test_the_error_codes_of_a_produce_answer_are_where_the_load_says() -> None:
    load = frames.produce_load("topic", [BATCH], acks=1, partitions=range(3))
    cursor = opened(load.frames[0])
    header = read_request_header(cursor)
    request = read_produce_request(cursor, header.version)
    results = [ProduceResult(index, code=0) for index in range(3)]
    # The last one fails; the others have the length of a success.
    results[2].code = 7
    out = response_header(header)
    write_produce_response(out, header.version, [(request.topics[0], results)])

    found = [struct.unpack_from(">h", out, 4 + at)[0] for at in load.error_at]

    assert found == [0, 0, 7]


def test_a_batch_holds_the_records_it_was_asked_for() -> None:
    view = BatchView(memoryview(bytearray(BATCH)))

    assert view.record_count == 3
    assert view.size_bytes == len(BATCH)
    assert view.crc_is_valid()


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_text_compresses_as_logs_do(codec: Codec) -> None:
    plain = frames.batch(record_bytes=1024, count=15, codec=Codec.NONE, timestamp_ms=0)
    packed = frames.batch(record_bytes=1024, count=15, codec=codec, timestamp_ms=0)

    assert 2 < len(plain) / len(packed) < 10


def test_fetch_frames_cover_the_log_in_whole_batches() -> None:
    load = frames.fetch_load(
        "topic", batch_bytes=1000, batch_records=3, batches=5, batches_per_fetch=2
    )
    wanted = []
    for frame in load.frames:
        cursor = opened(frame)
        request = read_fetch_request(cursor, read_request_header(cursor).version)
        assert cursor.position == cursor.end
        partition = request.topics[0].partitions[0]
        wanted.append((partition.offset, partition.max_bytes))

    assert wanted == [(0, 2000), (6, 2000), (12, 1000)]


def test_the_offset_of_a_fetch_frame_is_where_it_is_patched() -> None:
    frame = bytearray(frames.fetch_frame("topic", offset=0, max_bytes=1, min_bytes=1, wait_ms=500))
    struct.pack_into(">q", frame, 4 + frames.fetch_offset_at("topic"), 77)
    cursor = opened(bytes(frame))
    request = read_fetch_request(cursor, read_request_header(cursor).version)

    assert request.topics[0].partitions[0].offset == 77


def test_errors_and_records_of_a_fetch_answer_are_where_the_load_says() -> None:
    frame = frames.fetch_frame("topic", offset=0, max_bytes=1, min_bytes=1, wait_ms=500)
    cursor = opened(frame)
    header = read_request_header(cursor)
    topic = FetchTopicResult("topic", read_fetch_request(cursor, header.version).topics[0].topic_id)
    topic.partitions.append(FetchResult(0, code=3, records=BATCH, records_bytes=len(BATCH)))
    out = response_header(header)
    write_fetch_response(out, header.version, code=5, session_id=0, topics=[topic])
    records_at = frames.fetch_records_at("topic")

    assert [struct.unpack_from(">h", out, 4 + at)[0] for at in frames.fetch_errors_at("topic")] == [
        *(5, 3)
    ]
    assert out[4 + records_at :] == frames.varint(len(BATCH) + 1)


def test_at_least_one_record_makes_a_batch() -> None:
    assert frames.records_per_batch(10_240, 1) == 1
    assert frames.records_per_batch(1024, 16_384) == 15
