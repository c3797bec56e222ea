"""Committed offsets: Kafka's OffsetCommitKey 0-1 and OffsetCommitValue 0-4.

We write version 3, or 1 if a client requested a retention time. Kafka 4.3 writes 4, which
adds the topic id; older tools know up to 3 and skip newer versions.
"""

import struct
from functools import lru_cache
from typing import Final

from millstream.coordinators.codecs.changes import CommittedOffset, RecordKind
from millstream.encoding import Reader, Writer

_TOPIC_ID_TAG: Final = 0
_OFFSET_KIND: Final = int(RecordKind.OFFSET)
_KEY_HEAD: Final = struct.Struct(">hh")
_LENGTH: Final = struct.Struct(">h")
_PARTITION: Final = struct.Struct(">i")
# Version 3: the version, the offset, the leader epoch, and the length of the metadata.
_VALUE_HEAD: Final = struct.Struct(">hqih")
_TIMESTAMP: Final = struct.Struct(">q")
# The same with the timestamp, for empty metadata.
_PLAIN_VALUE: Final = struct.Struct(">hqihq")


@lru_cache(maxsize=10_000)
def encode_offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """Raises ValueError for a name that is longer than a record can hold."""
    # By hand, and cached: a commit is the one record that is written thousands of times a second.
    group, name = group_id.encode(), topic.encode()
    try:
        head = _KEY_HEAD.pack(_OFFSET_KIND, len(group))
        return b"".join((head, group, _LENGTH.pack(len(name)), name, _PARTITION.pack(partition)))
    except struct.error:
        raise ValueError(f"a name of {max(len(group), len(name))} bytes") from None


def decode_offset_key(reader: Reader) -> tuple[str, str, int]:
    return reader.string(), reader.string(), reader.int32()


def encode_offset_value(value: CommittedOffset) -> bytes:
    if value.expire_timestamp_ms < 0:
        offset, leader_epoch, time_ms = value.offset, value.leader_epoch, value.commit_timestamp_ms
        if not value.metadata:
            return _PLAIN_VALUE.pack(3, offset, leader_epoch, 0, time_ms)
        metadata = value.metadata.encode()
        head = _VALUE_HEAD.pack(3, offset, leader_epoch, len(metadata))
        return b"".join((head, metadata, _TIMESTAMP.pack(time_ms)))
    writer = Writer()
    writer.int16(1)
    writer.int64(value.offset)
    writer.string(value.metadata)
    writer.int64(value.commit_timestamp_ms)
    writer.int64(value.expire_timestamp_ms)
    return writer.getvalue()


def decode_offset_value(data: bytes) -> CommittedOffset:
    reader = Reader(data)
    version = reader.int16()
    if not 0 <= version <= 4:
        raise ValueError(f"a committed offset has version {version}")
    value = CommittedOffset(reader.int64())
    if version >= 3:
        value.leader_epoch = reader.int32()
    value.metadata = reader.compact_string() if version >= 4 else reader.string()
    value.commit_timestamp_ms = reader.int64()
    if version == 1:
        value.expire_timestamp_ms = reader.int64()
    if version >= 4:
        topic_id = reader.tagged_fields().get(_TOPIC_ID_TAG)
        if topic_id is not None:
            value.topic_id = Reader(topic_id).uuid()
    return value
