"""Produce, by hand: the records stay views of the frame, nothing is copied.

Versions 0 to 13. 3 brought transactions, 9 made it flexible, 13 names topics by id.
0 to 2 carry older record formats, which are refused; they are read to say so.
"""

import struct
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from millstream.errors import KafkaCode
from millstream.model import NO_TOPIC_ID
from millstream.wire import output
from millstream.wire.cursor import Cursor

FLEXIBLE_FROM: Final = 9
TOPIC_IDS_FROM: Final = 13
ACKS_ALL: Final = -1

_ACKS_AND_TIMEOUT = struct.Struct(">hi")
_RESULT_HEAD = struct.Struct(">ihq")
_RESULT = struct.Struct(">ihqqq")
_INT64 = struct.Struct(">q")
_LEADER_TAG = struct.Struct(">BBBiiB")


@dataclass(slots=True)
class ProduceTopic:
    """One topic of a request; `partitions` are (index, records) pairs."""

    name: str
    topic_id: uuid.UUID
    partitions: list[tuple[int, memoryview | None]]


@dataclass(slots=True)
class ProduceRequest:
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[ProduceTopic]


def read_produce_request(cursor: Cursor, version: int) -> ProduceRequest:
    if version >= FLEXIBLE_FROM:
        return _read_flexible(cursor, version)
    transactional_id = cursor.nullable_string() if version >= 3 else None
    acks, timeout_ms = cursor.unpack(_ACKS_AND_TIMEOUT)
    topics = []
    for _ in range(cursor.array_count()):
        name = cursor.string()
        partitions = [
            (cursor.int32(), cursor.nullable_bytes()) for _ in range(cursor.array_count())
        ]
        topics.append(ProduceTopic(name, NO_TOPIC_ID, partitions))
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _read_flexible(cursor: Cursor, version: int) -> ProduceRequest:
    transactional_id = cursor.compact_nullable_string()
    acks, timeout_ms = cursor.unpack(_ACKS_AND_TIMEOUT)
    topics = []
    for _ in range(cursor.compact_array_count()):
        name, topic_id = "", NO_TOPIC_ID
        if version >= TOPIC_IDS_FROM:
            topic_id = cursor.uuid()
        else:
            name = cursor.compact_string()
        partitions: list[tuple[int, memoryview | None]] = []
        for _ in cursor.each_of(cursor.compact_array_count()):
            index = cursor.int32()
            partitions.append((index, cursor.compact_nullable_bytes()))
            cursor.skip_tags()
        cursor.skip_tags()
        topics.append(ProduceTopic(name, topic_id, partitions))
    cursor.skip_tags()
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


@dataclass(slots=True)
class ProduceResult:
    """The result of one partition."""

    index: int
    code: int = KafkaCode.NONE
    base_offset: int = -1
    append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[tuple[int, str]] = ()
    message: str | None = None
    # The node to use instead, with NOT_LEADER_OR_FOLLOWER (KIP-951).
    leader_id: int = -1
    leader_epoch: int = -1


def write_produce_response(
    out: bytearray, version: int, topics: list[tuple[ProduceTopic, list[ProduceResult]]]
) -> None:
    if version >= FLEXIBLE_FROM:
        _write_flexible(out, version, topics)
        return
    output.array_count(out, len(topics))
    for topic, results in topics:
        output.string(out, topic.name)
        output.array_count(out, len(results))
        for result in results:
            out += _RESULT_HEAD.pack(result.index, result.code, result.base_offset)
            if version >= 2:
                out += _INT64.pack(result.append_time_ms)
            if version >= 5:
                out += _INT64.pack(result.log_start_offset)
            if version >= 8:
                output.array_count(out, len(result.record_errors))
                for index, text in result.record_errors:
                    output.int32(out, index)
                    output.nullable_string(out, text)
                output.nullable_string(out, result.message)
    if version >= 1:
        output.int32(out, 0)


def _write_flexible(
    out: bytearray, version: int, topics: list[tuple[ProduceTopic, list[ProduceResult]]]
) -> None:
    output.compact_array_count(out, len(topics))
    for topic, results in topics:
        if version >= TOPIC_IDS_FROM:
            out += topic.topic_id.bytes
        else:
            output.compact_string(out, topic.name)
        output.compact_array_count(out, len(results))
        for result in results:
            out += _RESULT.pack(
                result.index,
                result.code,
                result.base_offset,
                result.append_time_ms,
                result.log_start_offset,
            )
            if result.code == 0:
                # No record errors, no message, no tags.
                out += b"\1\0\0"
            else:
                _write_failure(out, version, result)
        out.append(0)
    output.int32(out, 0)
    out.append(0)


def _write_failure(out: bytearray, version: int, result: ProduceResult) -> None:
    output.compact_array_count(out, len(result.record_errors))
    for index, text in result.record_errors:
        output.int32(out, index)
        output.compact_nullable_string(out, text)
        out.append(0)
    output.compact_nullable_string(out, result.message)
    if version >= 10 and result.leader_id >= 0:
        # One tag: number 0, nine bytes, leader id and epoch, no tags inside.
        out += _LEADER_TAG.pack(1, 0, 9, result.leader_id, result.leader_epoch, 0)
    else:
        out.append(0)
