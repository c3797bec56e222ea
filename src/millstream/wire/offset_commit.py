"""OffsetCommit, by hand: consumers send it more often than anything but Fetch.

Versions 2 to 10. 2 to 4 carry a retention, 6 brought leader epochs, 7 static members, 8 made
it flexible, 10 names topics by id. Strings are copied out, so the frame may be reused.
"""

import struct
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from millstream.errors import KafkaCode
from millstream.model import NO_TOPIC_ID
from millstream.wire import output
from millstream.wire.cursor import Cursor

FLEXIBLE_FROM: Final = 8
TOPIC_IDS_FROM: Final = 10
RETENTION_UNTIL: Final = 4
# Metadata as clients write it by themselves, if any.
SHORT_METADATA: Final = 100

_INDEX_AND_OFFSET = struct.Struct(">iq")
_INDEX_OFFSET_EPOCH = struct.Struct(">iqi")
_INDEX_BYTES: Final = 4
_RESULT = struct.Struct(">ih")
_FLEXIBLE_RESULT = struct.Struct(">ihb")


@dataclass(slots=True)
class OffsetToCommit:
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    # Decided before the group is consulted: a topic that does not exist, for example.
    code: KafkaCode = KafkaCode.NONE


@dataclass(slots=True)
class OffsetCommitTopic:
    name: str
    topic_id: uuid.UUID
    partitions: list[OffsetToCommit]


@dataclass(slots=True)
class OffsetCommitRequest:
    group_id: str
    # The generation of a classic member, the epoch of one of the consumer protocol.
    generation: int
    member_id: str
    instance_id: str | None
    retention_ms: int
    topics: list[OffsetCommitTopic]
    # The position of each partition's offset in the frame; flexible versions only.
    offsets_at: list[int] = field(default_factory=list)


def read_offset_commit_request(cursor: Cursor, version: int) -> OffsetCommitRequest:
    if version >= FLEXIBLE_FROM:
        return _read_flexible(cursor, version)
    group_id = cursor.string()
    generation = cursor.int32()
    member_id = cursor.string()
    instance_id = cursor.nullable_string() if version >= 7 else None
    retention_ms = cursor.int64() if version <= RETENTION_UNTIL else -1
    topics = []
    for _ in range(cursor.array_count()):
        name = cursor.string()
        partitions = [_read_partition(cursor, version) for _ in range(cursor.array_count())]
        topics.append(OffsetCommitTopic(name, NO_TOPIC_ID, partitions))
    return OffsetCommitRequest(group_id, generation, member_id, instance_id, retention_ms, topics)


def _read_partition(cursor: Cursor, version: int) -> OffsetToCommit:
    index, offset = cursor.unpack(_INDEX_AND_OFFSET)
    leader_epoch = cursor.int32() if version >= 6 else -1
    return OffsetToCommit(index, offset, leader_epoch, cursor.nullable_string() or "")


def _read_flexible(cursor: Cursor, version: int) -> OffsetCommitRequest:
    group_id = cursor.compact_string()
    generation = cursor.int32()
    member_id = cursor.compact_string()
    instance_id = cursor.compact_nullable_string()
    topics = []
    offsets_at = []
    for _ in range(cursor.compact_array_count()):
        name, topic_id = "", NO_TOPIC_ID
        if version >= TOPIC_IDS_FROM:
            topic_id = cursor.uuid()
        else:
            name = cursor.compact_string()
        partitions = []
        for _ in range(cursor.compact_array_count()):
            offsets_at.append(cursor.position + _INDEX_BYTES)
            index, offset, leader_epoch = cursor.unpack(_INDEX_OFFSET_EPOCH)
            metadata = cursor.compact_nullable_string() or ""
            cursor.skip_tags()
            partitions.append(OffsetToCommit(index, offset, leader_epoch, metadata))
        cursor.skip_tags()
        topics.append(OffsetCommitTopic(name, topic_id, partitions))
    cursor.skip_tags()
    return OffsetCommitRequest(group_id, generation, member_id, instance_id, -1, topics, offsets_at)


def write_offset_commit_response(
    out: bytearray,
    version: int,
    topics: Sequence[OffsetCommitTopic],
    codes: Sequence[Sequence[KafkaCode]],
) -> None:
    """The request's topics in order, each with a code for each of its partitions."""
    if version >= 3:
        output.int32(out, 0)
    if version >= FLEXIBLE_FROM:
        _write_flexible(out, version, topics, codes)
        return
    output.array_count(out, len(topics))
    for topic, topic_codes in zip(topics, codes, strict=True):
        output.string(out, topic.name)
        output.array_count(out, len(topic.partitions))
        for one, code in zip(topic.partitions, topic_codes, strict=True):
            out += _RESULT.pack(one.partition, code)


def _write_flexible(
    out: bytearray,
    version: int,
    topics: Sequence[OffsetCommitTopic],
    codes: Sequence[Sequence[KafkaCode]],
) -> None:
    output.compact_array_count(out, len(topics))
    for topic, topic_codes in zip(topics, codes, strict=True):
        if version >= TOPIC_IDS_FROM:
            out += topic.topic_id.bytes
        else:
            output.compact_string(out, topic.name)
        output.compact_array_count(out, len(topic.partitions))
        for one, code in zip(topic.partitions, topic_codes, strict=True):
            out += _FLEXIBLE_RESULT.pack(one.partition, code, 0)
        out.append(0)
    out.append(0)
