"""Share groups (KIP-932): the values of record kinds 10, 11, 14 and 15, all in version 0.

Kinds 12 and 13 are written like their counterparts of consumer groups.
"""

from typing import Final
from uuid import UUID

from millstream.coordinators.codecs.changes import (
    ShareAssignment,
    SharedTopic,
    SharedTopics,
    StoredConsumerGroup,
    StoredShareMember,
)
from millstream.coordinators.codecs.consumer import (
    begin_value,
    open_value,
    read_assignment,
    read_texts,
    write_assignment,
    write_texts,
)
from millstream.encoding import Reader, Writer

# The only state of a member: it has what it is assigned.
_STABLE: Final = 0


def encode_group(value: StoredConsumerGroup) -> bytes:
    writer = begin_value()
    writer.int32(value.epoch)
    writer.int64(value.metadata_hash)
    writer.tagged_fields()
    return writer.getvalue()


def decode_group(data: bytes) -> StoredConsumerGroup:
    reader = open_value(data)
    return StoredConsumerGroup(reader.int32(), reader.int64())


def encode_member(value: StoredShareMember) -> bytes:
    writer = begin_value()
    writer.compact_nullable_string(value.rack_id)
    writer.compact_string(value.client_id)
    writer.compact_string(value.client_host)
    write_texts(writer, value.topics)
    writer.tagged_fields()
    return writer.getvalue()


def decode_member(data: bytes) -> StoredShareMember:
    reader = open_value(data)
    return StoredShareMember(
        reader.compact_nullable_string(),
        reader.compact_string(),
        reader.compact_string(),
        read_texts(reader),
    )


def encode_current_member(value: ShareAssignment) -> bytes:
    writer = begin_value()
    writer.int32(value.epoch)
    writer.int32(value.previous_epoch)
    writer.int8(_STABLE)
    write_assignment(writer, value.assigned)
    writer.tagged_fields()
    return writer.getvalue()


def decode_current_member(data: bytes) -> ShareAssignment:
    reader = open_value(data)
    epoch, previous_epoch = reader.int32(), reader.int32()
    reader.int8()
    return ShareAssignment(epoch, previous_epoch, read_assignment(reader))


def encode_partitions(value: SharedTopics) -> bytes:
    writer = begin_value()
    _write_topics(writer, value.initializing)
    _write_topics(writer, value.initialized)
    writer.compact_array_length(len(value.deleting))
    for topic_id in sorted(value.deleting):
        writer.uuid(topic_id)
        writer.compact_string(value.deleting[topic_id])
        writer.tagged_fields()
    writer.tagged_fields()
    return writer.getvalue()


def decode_partitions(data: bytes) -> SharedTopics:
    reader = open_value(data)
    initializing, initialized = _read_topics(reader), _read_topics(reader)
    deleting: dict[UUID, str] = {}
    for _ in range(reader.compact_array_length() or 0):
        topic_id = reader.uuid()
        deleting[topic_id] = reader.compact_string()
        reader.tagged_fields()
    return SharedTopics(initializing, initialized, deleting)


def _write_topics(writer: Writer, topics: dict[UUID, SharedTopic]) -> None:
    writer.compact_array_length(len(topics))
    for topic_id in sorted(topics):
        topic = topics[topic_id]
        writer.uuid(topic_id)
        writer.compact_string(topic.name)
        writer.compact_array_length(len(topic.partitions))
        for partition in topic.partitions:
            writer.int32(partition)
        writer.tagged_fields()


def _read_topics(reader: Reader) -> dict[UUID, SharedTopic]:
    topics: dict[UUID, SharedTopic] = {}
    for _ in range(reader.compact_array_length() or 0):
        topic_id, name = reader.uuid(), reader.compact_string()
        count = reader.compact_array_length() or 0
        topics[topic_id] = SharedTopic(name, tuple(sorted(reader.int32() for _ in range(count))))
        reader.tagged_fields()
    return topics
