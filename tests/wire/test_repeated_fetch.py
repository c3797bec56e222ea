"""A repeated fetch is what the decoder would have read, and its answer what it would write."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millstream.errors import ProtocolError
from millstream.wire.apis import fetch as messages
from millstream.wire.codec import request_writer
from millstream.wire.cursor import Cursor
from millstream.wire.fetch import (
    FLEXIBLE_FROM,
    FetchRequest,
    FetchResult,
    FetchTopicResult,
    read_fetch_request,
    write_fetch_response,
)
from millstream.wire.headers import (
    RequestHeader,
    finish_frame,
    read_request_header,
    response_header,
    write_request_header,
)
from millstream.wire.repeated_fetch import (
    ANSWER_END,
    BEFORE_BYTES_MAX,
    PARTITIONS_MAX,
    RepeatedFetch,
    repeated_fetch,
)
from tests.wire.test_codecs_agree import TOPIC_ID

API = messages.FetchRequest.api
VERSIONS = range(FLEXIBLE_FROM, API.max_version + 1)


def frame(
    offsets: dict[int, int],
    *,
    version: int = 16,
    correlation_id: int = 1,
    client_id: str = "app",
    **fields: Any,
) -> bytearray:
    out = bytearray()
    write_request_header(out, RequestHeader(API.key, version, correlation_id, client_id))
    partitions = [
        messages.FetchPartition(
            partition=index,
            current_leader_epoch=index - 1,
            fetch_offset=offset,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=1 << 20,
        )
        for index, offset in offsets.items()
    ]
    known: dict[str, Any] = {
        "replica_id": -1,
        "max_wait_ms": 500,
        "min_bytes": 1,
        "max_bytes": 1 << 24,
        "isolation_level": 1,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [
            messages.FetchTopic(topic="orders", topic_id=TOPIC_ID, partitions=partitions),
        ],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    request_writer(messages.FetchRequest, version)(out, messages.FetchRequest(**known | fields))
    return out


def decoded(data: bytes | bytearray) -> tuple[RequestHeader, FetchRequest]:
    cursor = Cursor(memoryview(data))
    header = read_request_header(cursor)
    body = read_fetch_request(cursor, header.version)
    assert cursor.position == len(data)
    return header, body


def learnt(data: bytearray) -> RepeatedFetch | None:
    return repeated_fetch(memoryview(data), *decoded(data))


def known(data: bytearray) -> RepeatedFetch:
    found = learnt(data)
    assert found is not None
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_the_next_request_is_known_whatever_its_partitions(version: int) -> None:
    repeated = known(frame({0: 1, 1: 2}, version=version))
    following = frame({5: 1 << 50, 0: 7, 3: 0}, version=version, correlation_id=-7)
    header, body = decoded(following)
    found = repeated.partitions_of(memoryview(following))
    assert found is not None
    assert repeated.body_of(found) == body
    correlation_id = repeated.correlation_of(memoryview(following))
    assert repeated.header_of(correlation_id) == header


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("isolation_level", [0, 1])
@pytest.mark.parametrize("count", [1, 3, PARTITIONS_MAX])
def test_the_answer_is_the_one_that_would_be_written(
    version: int, isolation_level: int, count: int
) -> None:
    data = frame(
        dict.fromkeys(range(count), 1),
        version=version,
        correlation_id=9,
        isolation_level=isolation_level,
    )
    header, _ = decoded(data)
    results = [
        FetchResult(
            index,
            high_watermark=1 << 40,
            last_stable_offset=7,
            log_start_offset=3,
            aborted=[] if isolation_level else None,
            records=bytearray(b"r" * (index * 100)),
            records_bytes=index * 100,
        )
        for index in range(count)
    ]
    out = response_header(header)
    topic = FetchTopicResult("orders", TOPIC_ID, results)
    [expected] = write_fetch_response(out, version, code=0, session_id=0, topics=[topic])
    assert isinstance(expected, bytearray)

    repeated = known(data)
    answer = repeated.begin_answer(9, count)
    for one in results:
        size_bytes = one.records_bytes
        repeated.write_result(answer, one.index, 1 << 40, 7, 3, size_bytes)
        answer += bytearray(b"r" * size_bytes)
        answer.append(0)
    answer += ANSWER_END
    assert finish_frame(answer) == finish_frame(expected)


@pytest.mark.parametrize(
    ("version", "fields"),
    [
        (FLEXIBLE_FROM - 1, {}),
        (14, {"replica_id": 3}),
        (16, {"client_id": "a" * BEFORE_BYTES_MAX}),
        (16, {"rack_id": "a"}),
        (16, {"session_id": 5, "session_epoch": 1}),
        (16, {"session_epoch": 0}),
        (16, {"topics": []}),
        (
            16,
            {
                "forgotten_topics_data": [
                    messages.FetchForgottenTopic(topic="orders", topic_id=TOPIC_ID, partitions=[1])
                ]
            },
        ),
    ],
)
def test_what_is_not_simple_is_not_learnt(version: int, fields: dict[str, Any]) -> None:
    assert learnt(frame({0: 1}, version=version, **fields)) is None


def test_too_many_partitions_are_not_learnt_and_not_known() -> None:
    many = frame(dict.fromkeys(range(PARTITIONS_MAX + 1), 1))
    assert learnt(many) is None
    assert known(frame({0: 1})).partitions_of(memoryview(many)) is None


def test_a_partition_that_is_named_twice_is_left_to_the_decoder() -> None:
    data = frame({0: 1, 1: 2})
    repeated = known(data)
    # The index of the second partition, which is followed by the rest of it and the end.
    at = len(data) - 4 - 33
    data[at : at + 4] = bytes(4)
    assert repeated.partitions_of(memoryview(data)) is None
    assert learnt(data) is None


@given(
    offset=st.integers(0, 1 << 60),
    at=st.integers(0, 300),
    byte=st.integers(0, 255),
    cut=st.integers(0, 3),
)
@example(offset=1, at=1, byte=1, cut=0)
def test_a_damaged_frame_is_never_taken_for_another(
    offset: int, at: int, byte: int, cut: int
) -> None:
    repeated = known(frame({0: 1, 1: 1}))
    data = frame({1: offset, 0: 1})
    data[at % len(data)] = byte
    del data[len(data) - cut :]
    found = repeated.partitions_of(memoryview(data))
    if found is None:
        return
    try:
        header, body = decoded(data)
    except ProtocolError:
        pytest.fail("a frame that cannot be decoded was taken")
    assert (header.api_key, header.version, header.client_id) == (API.key, 16, "app")
    assert repeated.body_of(found) == body
