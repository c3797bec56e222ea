"""A repeated produce is what the decoder would have read, and its answer what it would write."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millstream.errors import ProtocolError
from millstream.wire.apis import produce as messages
from millstream.wire.codec import request_writer
from millstream.wire.cursor import Cursor
from millstream.wire.headers import (
    RequestHeader,
    finish_frame,
    read_request_header,
    response_header,
    write_request_header,
)
from millstream.wire.produce import (
    FLEXIBLE_FROM,
    ProduceRequest,
    ProduceResult,
    ProduceTopic,
    read_produce_request,
    write_produce_response,
)
from millstream.wire.repeated import BEFORE_BYTES_MAX, RepeatedProduce, repeated_produce
from tests.wire.test_codecs_agree import TOPIC_ID

VERSIONS = range(FLEXIBLE_FROM, messages.ProduceRequest.api.max_version + 1)


def frame(
    records: bytes | None,
    *,
    version: int = 11,
    correlation_id: int = 1,
    transactional_id: str | None = None,
    acks: int = 1,
    partitions: int = 1,
    client_id: str = "app",
) -> bytearray:
    out = bytearray()
    write_request_header(
        out, RequestHeader(messages.ProduceRequest.api.key, version, correlation_id, client_id)
    )
    data = [messages.ProducePartitionData(index=3 + i, records=records) for i in range(partitions)]
    topic = messages.ProduceTopicData(name="orders", topic_id=TOPIC_ID, partition_data=data)
    request_writer(messages.ProduceRequest, version)(
        out,
        messages.ProduceRequest(
            transactional_id=transactional_id, acks=acks, timeout_ms=1500, topic_data=[topic]
        ),
    )
    return out


def decoded(data: bytes | bytearray) -> tuple[RequestHeader, ProduceRequest]:
    cursor = Cursor(memoryview(data))
    header = read_request_header(cursor)
    return header, read_produce_request(cursor, header.version)


def learnt(data: bytearray) -> RepeatedProduce | None:
    return repeated_produce(memoryview(data), *decoded(data))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [1, 3, 126, 127, 128, 16_382, 16_383, 16_384, 2_097_150])
def test_the_next_request_is_known_whatever_its_records(version: int, size: int) -> None:
    known = learnt(frame(b"first", version=version))
    assert known is not None
    following = memoryview(frame(b"x" * size, version=version, correlation_id=-7))
    assert known.partitions_of(following) == [(3, b"x" * size)]
    assert known.header_of(following) == decoded(bytes(following))[0]


def test_records_that_are_checked_in_a_thread_are_left_to_the_decoder() -> None:
    known = learnt(frame(b"first"))
    assert known is not None
    assert known.partitions_of(memoryview(frame(b"x" * 2_097_151))) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_other_partitions_of_the_topic_are_known_too(version: int) -> None:
    known = learnt(frame(b"first", version=version))
    assert known is not None
    following = memoryview(frame(b"x" * 200, version=version, partitions=3))
    assert known.partitions_of(following) == [(3, b"x" * 200), (4, b"x" * 200), (5, b"x" * 200)]
    assert bytes(following).startswith(known.before_records(3)[:4])
    single = bytes(frame(b"x", version=version))
    assert single.startswith(known.before_records(3))


@pytest.mark.parametrize("partitions", [1, 2, 126])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_answer_is_the_one_that_would_be_written(version: int, partitions: int) -> None:
    data = frame(b"records", version=version, correlation_id=9)
    known = learnt(data)
    assert known is not None
    header, _ = decoded(data)
    out = response_header(header)
    topic = ProduceTopic("orders", TOPIC_ID, [])
    results = [ProduceResult(3 + i, 0, 77 + i, 1234, 5) for i in range(partitions)]
    write_produce_response(out, version, [(topic, results)])
    placed = [(3 + i, 77 + i, 1234, 5) for i in range(partitions)]
    answer = known.answer(known.correlation_of(memoryview(data)), placed)
    assert answer == finish_frame(out)
    if partitions == 1:
        assert answer[known.answer_offsets_at :][:8] == (77).to_bytes(8, "big")


@pytest.mark.parametrize(
    "data",
    [
        frame(None),
        frame(b"abc", version=8),
        frame(b"abc", acks=0),
        frame(b"abc", transactional_id="tx"),
        frame(b"abc", partitions=0),
        # Too many for a count of one byte.
        frame(b"abc", partitions=127),
        # Each partition that a connection knows has these bytes.
        frame(b"abc", client_id="a" * BEFORE_BYTES_MAX),
    ],
)
def test_only_simple_requests_are_learnt(data: bytearray) -> None:
    assert learnt(data) is None


def test_layouts_of_few_answers_are_kept() -> None:
    known = learnt(frame(b"first"))
    assert known is not None
    for count in range(1, 127):
        known.answer(1, [(index, 0, 0, 0) for index in range(count)])
        assert len(known._layouts) <= 16


@given(
    first=st.binary(min_size=1, max_size=200),
    second=st.binary(min_size=1, max_size=200),
    at=st.integers(0, 300),
    byte=st.integers(0, 255),
    cut=st.integers(0, 20),
    partitions=st.integers(1, 3),
)
@example(first=b"abc", second=b"abcdef", at=1, byte=1, cut=0, partitions=1)
@example(first=b"abc", second=b"abcdef", at=40, byte=0xFF, cut=0, partitions=1)
def test_a_damaged_frame_is_never_taken_for_more_than_it_is(
    first: bytes, second: bytes, at: int, byte: int, cut: int, partitions: int
) -> None:
    known = learnt(frame(first))
    assert known is not None
    data = frame(second, partitions=partitions)
    data[at % len(data)] = byte
    del data[len(data) - cut :]
    found = known.partitions_of(memoryview(data))
    if found is None:
        return
    try:
        header, body = decoded(data)
    except ProtocolError:
        pytest.fail("a frame that cannot be decoded was taken")
    assert (header.api_key, header.version, header.client_id) == (0, 11, "app")
    assert (body.transactional_id, body.acks, body.timeout_ms) == (None, 1, 1500)
    [topic] = body.topics
    assert (topic.name, topic.partitions) == ("orders", found)
