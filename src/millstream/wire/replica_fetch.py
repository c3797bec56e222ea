"""Fetch as a follower sends it and reads the answer: version 16, by hand.

The node's own id and incarnation travel in a tag; topics go by id, so that a topic which was
deleted and created again is never taken for the old one. No session: every request names all
partitions, and what the leader remembers of it can never be out of step.
"""

import struct
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from millstream.errors import ProtocolError
from millstream.wire import output
from millstream.wire.cursor import Cursor
from millstream.wire.fetch import FetchPartition

VERSION: Final = 16
_HEAD = struct.Struct(">iiibii")
_PARTITION = struct.Struct(">iiqiqiB")
_REPLICA = struct.Struct(">BBBiqB")
_RESULT = struct.Struct(">ihqqq")
_READ_UNCOMMITTED: Final = 0
_NO_SESSION: Final = (0, -1)
_REPLICA_TAG: Final = 1
_DIVERGING_TAG: Final = 0


@dataclass(slots=True)
class ReplicaFetched:
    """The leader's answer about one partition; `records` is a view of the frame."""

    topic_id: uuid.UUID
    index: int
    code: int
    high_watermark: int
    log_start_offset: int
    records: memoryview
    diverging_epoch: int = -1
    diverging_offset: int = -1


def write_replica_fetch(
    out: bytearray,
    topics: Iterable[tuple[uuid.UUID, list[FetchPartition]]],
    *,
    replica_id: int,
    broker_epoch: int,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
) -> None:
    out += _HEAD.pack(max_wait_ms, min_bytes, max_bytes, _READ_UNCOMMITTED, *_NO_SESSION)
    listed = list(topics)
    output.compact_array_count(out, len(listed))
    for topic_id, partitions in listed:
        out += topic_id.bytes
        output.compact_array_count(out, len(partitions))
        for one in partitions:
            out += _PARTITION.pack(
                one.index,
                one.current_leader_epoch,
                one.offset,
                one.last_fetched_epoch,
                one.log_start_offset,
                one.max_bytes,
                0,
            )
        out.append(0)
    # No topics to forget; no rack.
    output.compact_array_count(out, 0)
    output.compact_string(out, "")
    size = _REPLICA.size - 3
    out += _REPLICA.pack(1, _REPLICA_TAG, size, replica_id, broker_epoch, 0)


def read_replica_fetched(cursor: Cursor) -> Iterator[ReplicaFetched]:
    """Raises ProtocolError for an answer that is none."""
    cursor.int32()
    code = cursor.int16()
    if code != 0:
        raise ProtocolError(f"the leader answers a fetch with error {code}")
    cursor.int32()
    for _ in range(cursor.compact_array_count()):
        topic_id = cursor.uuid()
        for _ in range(cursor.compact_array_count()):
            yield _read_one(cursor, topic_id)
        cursor.skip_tags()
    cursor.skip_tags()


def _read_one(cursor: Cursor, topic_id: uuid.UUID) -> ReplicaFetched:
    index, code, high_watermark, _, log_start_offset = cursor.unpack(_RESULT)
    for _ in range(max(cursor.compact_array_count(), 0)):
        cursor.take(16)
        cursor.skip_tags()
    cursor.int32()
    records = cursor.compact_nullable_bytes()
    result = ReplicaFetched(
        topic_id,
        index,
        code,
        high_watermark,
        log_start_offset,
        memoryview(b"") if records is None else records,
    )
    for tag, size in cursor.tags():
        end = cursor.position + size
        if tag == _DIVERGING_TAG:
            result.diverging_epoch, result.diverging_offset = cursor.int32(), cursor.int64()
        cursor.take(end - cursor.position)
    return result
