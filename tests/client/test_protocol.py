"""A connection's side of the protocol, without a connection."""

import struct

import pytest

from millstream.client.protocol import (
    VERSIONS_REQUEST,
    Dialogue,
    SpeaksTls,
    Versions,
    answer_size,
    read_answer,
    read_versions,
)
from millstream.errors import KafkaCode, ProtocolError
from millstream.wire.apis.api_versions import (
    ApiVersionsKey,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from millstream.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from millstream.wire.codec import request_reader, response_writer
from millstream.wire.cursor import Cursor
from millstream.wire.headers import read_request_header, response_header

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=3, member_id="m")


def answered(frame: bytearray, code: int) -> memoryview:
    """A node's answer to a heartbeat, without its size."""
    header = read_request_header(Cursor(memoryview(frame), 4))
    out = response_header(header)
    response_writer(HeartbeatRequest, header.version)(out, HeartbeatResponse(error_code=code))
    return memoryview(out)[4:]


def test_a_request_is_a_whole_frame() -> None:
    frame = Dialogue("me").frame(HEARTBEAT, 4)
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
    cursor = Cursor(memoryview(frame), 4)
    header = read_request_header(cursor)
    assert (header.api_key, header.version, header.client_id) == (12, 4, "me")
    assert request_reader(HeartbeatRequest, 4)(cursor) == HEARTBEAT


@pytest.mark.parametrize("version", [3, 4])
def test_answers_are_those_of_the_requests_in_their_order(version: int) -> None:
    dialogue = Dialogue("me")
    first, second = dialogue.frame(HEARTBEAT, version), dialogue.frame(HEARTBEAT, version)
    for frame, code in ((first, 1), (second, 2)):
        cursor = dialogue.open_answer(answered(frame, code))
        assert read_answer(HeartbeatRequest, version, cursor).error_code == code


def test_an_answer_to_another_request_is_refused() -> None:
    dialogue = Dialogue("me")
    dialogue.frame(HEARTBEAT, 4)
    second = dialogue.frame(HEARTBEAT, 4)
    with pytest.raises(ProtocolError, match="another request"):
        dialogue.open_answer(answered(second, 0))


@pytest.mark.parametrize("size", [-1, 3, 2**31 - 1])
def test_a_size_that_cannot_be_is_refused(size: int) -> None:
    with pytest.raises(ProtocolError, match=f"{size} bytes"):
        answer_size(struct.pack(">i", size))


def test_a_node_that_wants_tls_is_recognised() -> None:
    with pytest.raises(SpeaksTls):
        answer_size(b"\x15\x03\x03\x00")


def offered(low: int, high: int) -> Versions:
    row = ApiVersionsKey(api_key=HeartbeatRequest.api.key, min_version=low, max_version=high)
    return Versions(ApiVersionsResponse(error_code=0, api_keys=[row]))


@pytest.mark.parametrize(
    ("low", "high", "limit", "chosen"),
    [(0, 9, 32767, 4), (0, 2, 32767, 2), (0, 9, 1, 1), (5, 9, 32767, -1), (2, 9, 1, -1)],
)
def test_the_newest_version_that_both_sides_know(
    low: int, high: int, limit: int, chosen: int
) -> None:
    assert offered(low, high).newest(HeartbeatRequest.api, limit) == chosen


def test_what_is_not_listed_is_not_offered() -> None:
    versions = offered(0, 4)
    assert versions.offers(HeartbeatRequest.api)
    assert not versions.offers(ApiVersionsRequest.api)
    assert versions.newest(ApiVersionsRequest.api) == -1


def test_a_node_that_does_not_know_the_version_of_the_question_says_so() -> None:
    out = bytearray()
    refusal = ApiVersionsResponse(error_code=KafkaCode.UNSUPPORTED_VERSION, api_keys=[])
    response_writer(ApiVersionsRequest, 0)(out, refusal)
    assert read_versions(Cursor(memoryview(out)), 3) is None
    assert VERSIONS_REQUEST.client_software_name == "millstream"
