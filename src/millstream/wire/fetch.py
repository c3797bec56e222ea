"""Fetch, by hand: the response is written around the records, which stay in their files.

Versions 4 to 18. 7 brought sessions, 9 the leader epoch, 11 the rack, 12 flexible
encoding and the last fetched epoch, 13 topic ids, 15 moved the replica id into a tag.
"""

import struct
import uuid
from dataclasses import field
from typing import Final

from millstream.errors import KafkaCode
from millstream.lazy_dataclass import dataclass
from millstream.model import NO_TOPIC_ID
from millstream.wire import output
from millstream.wire.cursor import Cursor

FLEXIBLE_FROM: Final = 12
TOPIC_IDS_FROM: Final = 13
READ_COMMITTED: Final = 1

_INT32 = struct.Struct(">i")
_WAIT_AND_MIN = struct.Struct(">ii")
_PARTITION_V4 = struct.Struct(">iqi")
_PARTITION_V5 = struct.Struct(">iqqi")
_PARTITION_V9 = struct.Struct(">iiqqi")
_PARTITION_V12 = struct.Struct(">iiqiqi")
_RESULT_V4 = struct.Struct(">ihqq")
_RESULT_V5 = struct.Struct(">ihqqq")
_INT64_PAIR = struct.Struct(">qq")


@dataclass(slots=True)
class FetchPartition:
    index: int
    offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1


@dataclass(slots=True)
class FetchTopic:
    name: str
    topic_id: uuid.UUID
    partitions: list[FetchPartition]


@dataclass(slots=True)
class ForgottenTopic:
    name: str
    topic_id: uuid.UUID
    partitions: list[int]


@dataclass(slots=True)
class FetchRequest:
    replica_id: int
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]
    rack_id: str


def read_fetch_request(cursor: Cursor, version: int) -> FetchRequest:
    replica_id = cursor.int32() if version <= 14 else -1
    max_wait_ms, min_bytes = _WAIT_AND_MIN.unpack(cursor.take(8))
    max_bytes = cursor.int32()
    isolation_level = cursor.int8()
    session_id, session_epoch = _WAIT_AND_MIN.unpack(cursor.take(8)) if version >= 7 else (0, -1)
    flexible = version >= FLEXIBLE_FROM
    topics = _read_topics(cursor, version, flexible=flexible)
    forgotten = _read_forgotten(cursor, version, flexible=flexible) if version >= 7 else []
    rack_id = ""
    if version >= 11:
        rack_id = cursor.compact_string() if flexible else cursor.string()
    replica_epoch = -1
    if flexible:
        for tag, size in cursor.tags():
            if tag == 1 and version >= 15:
                end = cursor.position + size
                replica_id, replica_epoch = cursor.int32(), cursor.int64()
                cursor.take(end - cursor.position)
            else:
                cursor.take(size)
    return FetchRequest(
        replica_id=replica_id,
        replica_epoch=replica_epoch,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=topics,
        forgotten=forgotten,
        rack_id=rack_id,
    )


def _read_name(cursor: Cursor, version: int, *, flexible: bool) -> tuple[str, uuid.UUID]:
    if version >= TOPIC_IDS_FROM:
        return "", cursor.uuid()
    return (cursor.compact_string() if flexible else cursor.string()), NO_TOPIC_ID


def _read_topics(cursor: Cursor, version: int, *, flexible: bool) -> list[FetchTopic]:
    topics = []
    for _ in range(cursor.compact_array_count() if flexible else cursor.array_count()):
        name, topic_id = _read_name(cursor, version, flexible=flexible)
        count = cursor.compact_array_count() if flexible else cursor.array_count()
        partitions = []
        for _ in cursor.each_of(count):
            partitions.append(_read_partition(cursor, version))
            if flexible:
                cursor.skip_tags()
        if flexible:
            cursor.skip_tags()
        topics.append(FetchTopic(name, topic_id, partitions))
    return topics


def _read_partition(cursor: Cursor, version: int) -> FetchPartition:
    if version >= 12:
        index, epoch, offset, last_epoch, start, size = _PARTITION_V12.unpack(cursor.take(32))
        return FetchPartition(index, offset, size, epoch, last_epoch, start)
    if version >= 9:
        index, epoch, offset, start, size = _PARTITION_V9.unpack(cursor.take(28))
        return FetchPartition(index, offset, size, epoch, -1, start)
    if version >= 5:
        index, offset, start, size = _PARTITION_V5.unpack(cursor.take(24))
        return FetchPartition(index, offset, size, -1, -1, start)
    index, offset, size = _PARTITION_V4.unpack(cursor.take(16))
    return FetchPartition(index, offset, size)


def _read_forgotten(cursor: Cursor, version: int, *, flexible: bool) -> list[ForgottenTopic]:
    forgotten = []
    for _ in range(cursor.compact_array_count() if flexible else cursor.array_count()):
        name, topic_id = _read_name(cursor, version, flexible=flexible)
        count = cursor.compact_array_count() if flexible else cursor.array_count()
        forgotten.append(ForgottenTopic(name, topic_id, [cursor.int32() for _ in range(count)]))
        if flexible:
            cursor.skip_tags()
    return forgotten


@dataclass(slots=True)
class AbortedTransaction:
    producer_id: int
    first_offset: int


@dataclass(slots=True)
class FetchResult:
    """The result of one partition; the records themselves follow as `records`, `records_bytes`
    long: a few of them as a `bytearray`, which becomes part of the response, more in whatever
    form the caller sends (a range of a file)."""

    index: int
    code: int = KafkaCode.NONE
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: list[AbortedTransaction] | None = None
    records: object = None
    records_bytes: int = 0
    diverging_epoch: int = -1
    diverging_offset: int = -1
    leader_id: int = -1
    leader_epoch: int = -1
    # Another node that the consumer should read from (KIP-392).
    preferred_replica: int = -1


@dataclass(slots=True)
class FetchTopicResult:
    name: str
    topic_id: uuid.UUID
    partitions: list[FetchResult] = field(default_factory=list)


def write_fetch_response(
    out: bytearray,
    version: int,
    *,
    code: int,
    session_id: int,
    topics: list[FetchTopicResult],
) -> list[object]:
    """The response as pieces in sending order: bytes, records, bytes, ... `out` is the first."""
    pieces: list[object] = [out]
    flexible = version >= FLEXIBLE_FROM
    write_count = output.compact_array_count if flexible else output.array_count
    output.int32(out, 0)
    if version >= 7:
        output.int16(out, code)
        output.int32(out, session_id)
    write_count(out, len(topics))
    for topic in topics:
        if version >= TOPIC_IDS_FROM:
            out += topic.topic_id.bytes
        elif flexible:
            output.compact_string(out, topic.name)
        else:
            output.string(out, topic.name)
        write_count(out, len(topic.partitions))
        for result in topic.partitions:
            _write_result_head(out, version, result, flexible=flexible)
            if isinstance(result.records, bytearray):
                out += result.records
            elif result.records_bytes:
                pieces.append(result.records)
                out = bytearray()
                pieces.append(out)
            if flexible:
                _write_result_tags(out, result)
        if flexible:
            out.append(0)
    if flexible:
        out.append(0)
    if not out and len(pieces) > 1:
        pieces.pop()
    return pieces


def _write_result_head(
    out: bytearray, version: int, result: FetchResult, *, flexible: bool
) -> None:
    if version >= 5:
        out += _RESULT_V5.pack(
            result.index,
            result.code,
            result.high_watermark,
            result.last_stable_offset,
            result.log_start_offset,
        )
    else:
        out += _RESULT_V4.pack(
            result.index, result.code, result.high_watermark, result.last_stable_offset
        )
    write_count = output.compact_array_count if flexible else output.array_count
    if result.aborted is None:
        write_count(out, -1)
    else:
        write_count(out, len(result.aborted))
        for aborted in result.aborted:
            out += _INT64_PAIR.pack(aborted.producer_id, aborted.first_offset)
            if flexible:
                out.append(0)
    if version >= 11:
        output.int32(out, result.preferred_replica)
    if flexible:
        output.unsigned_varint(out, result.records_bytes + 1)
    else:
        out += _INT32.pack(result.records_bytes)


def _write_result_tags(out: bytearray, result: FetchResult) -> None:
    count = (result.diverging_epoch >= 0) + (result.leader_id >= 0)
    out.append(count)
    if result.diverging_epoch >= 0:
        out += struct.pack(">BBiqB", 0, 13, result.diverging_epoch, result.diverging_offset, 0)
    if result.leader_id >= 0:
        out += struct.pack(">BBiiB", 1, 9, result.leader_id, result.leader_epoch, 0)
