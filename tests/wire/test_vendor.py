"""Our own messages: what is written is read back, and half of it is refused."""

import pytest

from millstream.errors import ProtocolError
from millstream.wire.apis.compact_topic import (
    CompactedPartition,
    CompactTopicRequest,
    CompactTopicResponse,
)
from millstream.wire.codec import (
    request_reader,
    request_writer,
    response_reader,
    response_writer,
)
from millstream.wire.cursor import Cursor


def partition(index: int, state: int, problem: str | None) -> CompactedPartition:
    return CompactedPartition(
        partition=index,
        state=state,
        problem=problem,
        dirty_ratio=0.5,
        bytes_before=2**40,
        bytes_after=50,
        records_before=10,
        records_after=5,
        keys=5,
        moved_bytes=150,
        elapsed_ms=7,
    )


RESPONSE = CompactTopicResponse(
    error_code=0,
    error_message=None,
    partitions=[partition(0, 2, None), partition(1, 3, "damaged")],
)


def test_a_request_is_read_back() -> None:
    request = CompactTopicRequest(topic="table", is_started=True)
    out = bytearray()
    request_writer(CompactTopicRequest, 0)(out, request)
    cursor = Cursor(memoryview(out))
    assert request_reader(CompactTopicRequest, 0)(cursor) == request
    assert cursor.position == len(out)


def test_a_response_is_read_back_and_a_short_one_refused() -> None:
    out = bytearray()
    response_writer(CompactTopicRequest, 0)(out, RESPONSE)
    read = response_reader(CompactTopicRequest, 0)
    assert read(Cursor(memoryview(out))) == RESPONSE
    for end in range(len(out)):
        with pytest.raises(ProtocolError):
            read(Cursor(memoryview(out)[:end]))
