"""Our own messages: what is written is read back."""

import pytest

from millstream.errors import ProtocolError
from millstream.wire.cursor import Cursor
from millstream.wire.vendor import (
    CompactedPartition,
    CompactTopicRequest,
    CompactTopicResponse,
    compact_topic_frame,
    read_compact_topic,
    read_compact_topic_response,
    write_compact_topic_response,
)

RESPONSE = CompactTopicResponse(
    0,
    None,
    [
        CompactedPartition(0, 2, None, 0.5, 100, 50, 10, 5, 5, 150, 7),
        CompactedPartition(1, 3, "damaged", 1.0, 2**40, 0, 0, 0, 0, 0, 0),
    ],
)


def test_a_request_is_read_back() -> None:
    request = CompactTopicRequest("table", is_started=True)
    frame = compact_topic_frame(request, correlation_id=7, client_id="me")
    cursor = Cursor(memoryview(frame), 8)
    assert cursor.nullable_string() == "me"
    assert read_compact_topic(cursor) == request
    assert cursor.position == len(frame)


def test_a_response_is_read_back() -> None:
    frame = write_compact_topic_response(RESPONSE, correlation_id=7)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert int.from_bytes(frame[4:8], "big") == 7
    assert read_compact_topic_response(Cursor(memoryview(frame), 8)) == RESPONSE


def test_a_short_response_is_refused() -> None:
    frame = write_compact_topic_response(RESPONSE, correlation_id=7)
    for end in range(8, len(frame)):
        with pytest.raises(ProtocolError):
            read_compact_topic_response(Cursor(memoryview(frame)[:end], 8))
