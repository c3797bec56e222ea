"""Requests that are ours and not Kafka's: their own key range, from 20000 up.

They are listed in ApiVersions only to clients that call themselves `millstream`, so that
nobody else's client meets keys it does not know. `docs/protocol.md` has the table.

CommitGroup (20000) and LastBatch (20001) are described as kio describes Kafka's messages, so
that `messages` reads and writes them, flexible. CompactTopic is encoded by hand, not flexible:

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
from typing import ClassVar, Final

from millstream.wire import output
from millstream.wire.cursor import Cursor

KEYS_FROM: Final = 20_000
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


def _of(kafka_type: str) -> dict[str, str]:
    return {"kafka_type": kafka_type}


@dataclass(frozen=True)
class CommitGroupMember:
    __flexible__: ClassVar[bool] = True
    transactional_id: str = field(metadata=_of("string"))
    producer_id: int = field(metadata=_of("int64"))
    producer_epoch: int = field(metadata=_of("int16"))


@dataclass(frozen=True)
class CommitGroupRequest:
    """Commit the transactions of these members, abort those of the others, as batch `batch`."""

    __flexible__: ClassVar[bool] = True
    group: str = field(metadata=_of("string"))
    batch: int = field(metadata=_of("int64"))
    members: tuple[CommitGroupMember, ...]


@dataclass(frozen=True)
class CommitGroupResponse:
    """`already_committed`: the batch, or a later one, was committed before; nothing was done."""

    __flexible__: ClassVar[bool] = True
    error_code: int = field(metadata=_of("error_code"))
    error_message: str | None = field(metadata=_of("string"))
    already_committed: bool = field(metadata=_of("bool"))
    last_batch: int = field(metadata=_of("int64"))


@dataclass(frozen=True)
class LastBatchRequest:
    __flexible__: ClassVar[bool] = True
    group: str = field(metadata=_of("string"))


@dataclass(frozen=True)
class LastBatchResponse:
    """`last_batch` is -1 for a group that has committed none."""

    __flexible__: ClassVar[bool] = True
    error_code: int = field(metadata=_of("error_code"))
    error_message: str | None = field(metadata=_of("string"))
    last_batch: int = field(metadata=_of("int64"))


# By API key: the request and the response.
SCHEMAS: Final[dict[int, tuple[type, type]]] = {
    20_000: (CommitGroupRequest, CommitGroupResponse),
    20_001: (LastBatchRequest, LastBatchResponse),
}
