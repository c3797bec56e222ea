"""Requests that are ours and not Kafka's: their own key range, encoded by hand.

They are listed in ApiVersions only to clients that call themselves `millstream`, so that
nobody else's client meets keys it does not know. All use the plain (not flexible) encoding.

    CompactTopic (20002), version 0
      request    topic string, is_started boolean (false: only tell)
      response   error code int16, message nullable string, array of:
                 partition int32, state int8 (0 idle, 1 waiting, 2 running, 3 failed),
                 problem nullable string, dirty ratio float64, bytes before int64, bytes
                 after int64, records before int64, records after int64, keys int64,
                 bytes moved int64, elapsed ms int64
"""

import struct
from dataclasses import dataclass, field
from typing import Final

from millstream.wire import output
from millstream.wire.cursor import Cursor

CLIENT_SOFTWARE_NAME: Final = "millstream"
COMPACT_TOPIC: Final = 20002
# Key and newest version; the oldest is 0.
VENDOR_APIS: Final = {COMPACT_TOPIC: 0}

_NUMBERS: Final = struct.Struct(">dqqqqqqq")
_HEADER: Final = struct.Struct(">hhi")
_CORRELATION: Final = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class CompactTopicRequest:
    topic: str
    is_started: bool


@dataclass(frozen=True, slots=True)
class CompactedPartition:
    partition: int
    state: int
    problem: str | None
    dirty_ratio: float
    bytes_before: int
    bytes_after: int
    records_before: int
    records_after: int
    keys: int
    moved_bytes: int
    elapsed_ms: int


@dataclass(frozen=True, slots=True)
class CompactTopicResponse:
    error_code: int
    message: str | None = None
    partitions: list[CompactedPartition] = field(default_factory=list)


def read_compact_topic(cursor: Cursor) -> CompactTopicRequest:
    """Raises ProtocolError."""
    return CompactTopicRequest(cursor.string(), cursor.boolean())


def compact_topic_frame(
    request: CompactTopicRequest, *, correlation_id: int, client_id: str
) -> bytearray:
    """The request with its header, and without the size before it."""
    out = bytearray(_HEADER.pack(COMPACT_TOPIC, 0, correlation_id))
    output.nullable_string(out, client_id)
    output.string(out, request.topic)
    output.boolean(out, request.is_started)
    return out


def write_compact_topic_response(
    response: CompactTopicResponse, *, correlation_id: int
) -> bytearray:
    """The whole frame, size and header included."""
    out = bytearray(4) + _CORRELATION.pack(correlation_id)
    output.int16(out, response.error_code)
    output.nullable_string(out, response.message)
    output.array_count(out, len(response.partitions))
    for each in response.partitions:
        output.int32(out, each.partition)
        output.int8(out, each.state)
        output.nullable_string(out, each.problem)
        out += _NUMBERS.pack(
            each.dirty_ratio,
            each.bytes_before,
            each.bytes_after,
            each.records_before,
            each.records_after,
            each.keys,
            each.moved_bytes,
            each.elapsed_ms,
        )
    _CORRELATION.pack_into(out, 0, len(out) - 4)
    return out


def read_compact_topic_response(cursor: Cursor) -> CompactTopicResponse:
    """What follows the response header."""
    code, message = cursor.int16(), cursor.nullable_string()
    partitions = [
        CompactedPartition(
            cursor.int32(),
            cursor.int8(),
            cursor.nullable_string(),
            *_NUMBERS.unpack(cursor.take(_NUMBERS.size)),
        )
        for _ in range(cursor.array_count())
    ]
    return CompactTopicResponse(code, message, partitions)
