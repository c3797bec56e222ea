"""A repeated commit is what the decoder would have read, and its answer what it would write."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millstream.errors import KafkaCode, ProtocolError
from millstream.wire.apis import offset_commit as messages
from millstream.wire.codec import request_writer
from millstream.wire.cursor import Cursor
from millstream.wire.headers import (
    RequestHeader,
    finish_frame,
    read_request_header,
    response_header,
    write_request_header,
)
from millstream.wire.offset_commit import (
    FLEXIBLE_FROM,
    OffsetCommitRequest,
    read_offset_commit_request,
    write_offset_commit_response,
)
from millstream.wire.repeated_commit import FRAME_BYTES_MAX, RepeatedCommit, repeated_commit
from tests.wire.test_codecs_agree import TOPIC_ID

VERSIONS = range(FLEXIBLE_FROM, messages.OffsetCommitRequest.api.max_version + 1)
# Topics, and how many partitions of each.
SHAPE = (("orders", 2), ("clicks", 1))


def frame(
    offset: int,
    *,
    version: int = 9,
    correlation_id: int = 1,
    epoch: int = 5,
    metadata: str = "note",
) -> bytearray:
    out = bytearray()
    write_request_header(
        out, RequestHeader(messages.OffsetCommitRequest.api.key, version, correlation_id, "app")
    )
    topics = [
        messages.OffsetCommitTopic(
            name=name,
            topic_id=TOPIC_ID,
            partitions=[
                messages.OffsetCommitPartition(
                    partition_index=index,
                    committed_offset=offset + index,
                    committed_leader_epoch=epoch,
                    committed_metadata=metadata if index else None,
                )
                for index in range(count)
            ],
        )
        for name, count in SHAPE
    ]
    request_writer(messages.OffsetCommitRequest, version)(
        out,
        messages.OffsetCommitRequest(
            group_id="readers",
            generation_id_or_member_epoch=12,
            member_id="member-1",
            group_instance_id=None,
            retention_time_ms=-1,
            topics=topics,
        ),
    )
    return out


def decoded(data: bytes | bytearray) -> tuple[RequestHeader, OffsetCommitRequest]:
    cursor = Cursor(memoryview(data))
    header = read_request_header(cursor)
    body = read_offset_commit_request(cursor, header.version)
    assert cursor.position == len(data)
    return header, body


def learnt(data: bytearray) -> RepeatedCommit:
    known = repeated_commit(memoryview(data), *decoded(data))
    assert known is not None
    return known


def committer(body: OffsetCommitRequest) -> tuple[object, ...]:
    return (
        *(body.group_id, body.generation, body.member_id, body.instance_id),
        body.retention_ms,
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_the_next_request_is_known_whatever_its_offsets(version: int) -> None:
    known = learnt(frame(1, version=version))
    following = memoryview(frame(1 << 50, version=version, correlation_id=-7, epoch=-1))
    header, body = decoded(bytes(following))
    assert known.topics_of(following) == body.topics
    assert committer(known.body) == committer(body)
    assert known.header_of(following) == header


@pytest.mark.parametrize("version", VERSIONS)
def test_the_answer_is_the_one_that_would_be_written(version: int) -> None:
    data = frame(1, version=version, correlation_id=9)
    header, body = decoded(data)
    out = response_header(header)
    codes = [[KafkaCode.NONE] * count for _, count in SHAPE]
    write_offset_commit_response(out, version, body.topics, codes)
    assert learnt(frame(7, version=version)).answer(9) == finish_frame(out)


@pytest.mark.parametrize(("length", "is_long"), [(0, False), (100, False), (101, True)])
def test_long_metadata_is_noticed(length: int, is_long: bool) -> None:
    assert learnt(frame(1, metadata="m" * length)).has_long_metadata is is_long


def test_versions_before_the_flexible_ones_are_not_learnt() -> None:
    data = frame(1, version=FLEXIBLE_FROM - 1)
    assert repeated_commit(memoryview(data), *decoded(data)) is None


def test_large_commits_are_not_learnt() -> None:
    # In each of three partitions, and one of them has none.
    rest_bytes = len(frame(1, metadata="m" * 5_000)) - 5_000
    for more, is_learnt in ((0, True), (1, False)):
        data = frame(1, metadata="m" * (FRAME_BYTES_MAX - rest_bytes + more))
        assert len(data) == FRAME_BYTES_MAX + more
        assert (repeated_commit(memoryview(data), *decoded(data)) is not None) is is_learnt


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
    known = learnt(frame(1))
    data = frame(offset)
    data[at % len(data)] = byte
    del data[len(data) - cut :]
    found = known.topics_of(memoryview(data))
    if found is None:
        return
    try:
        header, body = decoded(data)
    except ProtocolError:
        pytest.fail("a frame that cannot be decoded was taken")
    assert (header.api_key, header.version, header.client_id) == (8, 9, "app")
    assert found == body.topics
    assert committer(known.body) == committer(body)
