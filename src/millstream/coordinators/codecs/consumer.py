"""Consumer groups (KIP-848): the values of record kinds 3 to 8 and 16, all in version 0.

Keys are plain; values are flexible. Maps are written in the order of topic ids, so that the
same state always gives the same bytes.
"""

from collections.abc import Callable
from typing import Final

from millstream.coordinators.codecs.changes import (
    Assignment,
    ClassicProtocols,
    CurrentAssignment,
    MatchedTopics,
    MemberState,
    StoredConsumerGroup,
    StoredConsumerMember,
    StoredTarget,
)
from millstream.encoding import Reader, Writer

_FIRST_TAG: Final = 0


def begin_value() -> Writer:
    writer = Writer()
    writer.int16(0)
    return writer


def open_value(data: bytes) -> Reader:
    reader = Reader(data)
    version = reader.int16()
    if version != 0:
        raise ValueError(f"a consumer group's record has version {version}")
    return reader


def _tagged_int64(value: int) -> dict[int, bytes]:
    """In Kafka's form: the default, zero, is left out."""
    return {_FIRST_TAG: value.to_bytes(8, "big", signed=True)} if value else {}


def _read_tagged_int64(reader: Reader) -> int:
    tagged = reader.tagged_fields().get(_FIRST_TAG)
    return Reader(tagged).int64() if tagged is not None else 0


def encode_consumer_group(value: StoredConsumerGroup) -> bytes:
    writer = begin_value()
    writer.int32(value.epoch)
    writer.tagged_fields(_tagged_int64(value.metadata_hash))
    return writer.getvalue()


def decode_consumer_group(data: bytes) -> StoredConsumerGroup:
    reader = open_value(data)
    return StoredConsumerGroup(reader.int32(), _read_tagged_int64(reader))


def encode_target(value: StoredTarget) -> bytes:
    writer = begin_value()
    writer.int32(value.epoch)
    writer.tagged_fields(_tagged_int64(value.timestamp_ms))
    return writer.getvalue()


def decode_target(data: bytes) -> StoredTarget:
    reader = open_value(data)
    return StoredTarget(reader.int32(), _read_tagged_int64(reader))


def encode_member(value: StoredConsumerMember) -> bytes:
    writer = begin_value()
    writer.compact_nullable_string(value.instance_id)
    writer.compact_nullable_string(value.rack_id)
    writer.compact_string(value.client_id)
    writer.compact_string(value.client_host)
    write_texts(writer, value.topics)
    writer.compact_nullable_string(value.pattern)
    writer.int32(value.rebalance_timeout_ms)
    writer.compact_nullable_string(value.assignor)
    tagged = {}
    if value.classic is not None:
        # A byte before a nullable structure says whether it is null.
        tagged[_FIRST_TAG] = b"\x01" + _encode_classic(value.classic)
    writer.tagged_fields(tagged)
    return writer.getvalue()


def decode_member(data: bytes) -> StoredConsumerMember:
    reader = open_value(data)
    instance_id, rack_id = reader.compact_nullable_string(), reader.compact_nullable_string()
    client_id, client_host = reader.compact_string(), reader.compact_string()
    topics = read_texts(reader)
    pattern = reader.compact_nullable_string()
    rebalance_timeout_ms = reader.int32()
    assignor = reader.compact_nullable_string()
    tagged = reader.tagged_fields().get(_FIRST_TAG)
    classic = None
    if tagged is not None:
        inner = Reader(tagged)
        classic = _decode_classic(inner) if inner.int8() >= 0 else None
    return StoredConsumerMember(
        instance_id,
        rack_id,
        client_id,
        client_host,
        topics,
        pattern,
        rebalance_timeout_ms,
        assignor,
        classic,
    )


def _encode_classic(value: ClassicProtocols) -> bytes:
    writer = Writer()
    writer.int32(value.session_timeout_ms)
    writer.compact_array_length(len(value.protocols))
    for name, metadata in value.protocols:
        writer.compact_string(name)
        writer.compact_bytes(metadata)
        writer.tagged_fields()
    writer.tagged_fields()
    return writer.getvalue()


def _decode_classic(reader: Reader) -> ClassicProtocols:
    session_timeout_ms = reader.int32()
    protocols = []
    for _ in range(reader.compact_array_length() or 0):
        protocols.append((reader.compact_string(), bytes(reader.compact_bytes())))
        reader.tagged_fields()
    reader.tagged_fields()
    return ClassicProtocols(session_timeout_ms, tuple(protocols))


def encode_target_member(value: Assignment) -> bytes:
    writer = begin_value()
    write_assignment(writer, value)
    writer.tagged_fields()
    return writer.getvalue()


def decode_target_member(data: bytes) -> Assignment:
    reader = open_value(data)
    value = read_assignment(reader)
    reader.tagged_fields()
    return value


def encode_current_member(value: CurrentAssignment) -> bytes:
    writer = begin_value()
    writer.int32(value.epoch)
    writer.int32(value.previous_epoch)
    writer.int8(value.state)
    write_assignment(writer, value.assigned)
    write_assignment(writer, value.revoking)
    writer.tagged_fields()
    return writer.getvalue()


def decode_current_member(data: bytes) -> CurrentAssignment:
    reader = open_value(data)
    epoch, previous_epoch, number = reader.int32(), reader.int32(), reader.int8()
    known = number in MemberState.__members__.values()
    value = CurrentAssignment(
        epoch,
        previous_epoch,
        MemberState(number) if known else MemberState.UNKNOWN,
        read_assignment(reader),
        read_assignment(reader),
    )
    reader.tagged_fields()
    return value


def encode_pattern(value: MatchedTopics) -> bytes:
    writer = begin_value()
    write_texts(writer, value.topics)
    writer.int64(value.version)
    writer.int64(value.timestamp_ms)
    writer.tagged_fields()
    return writer.getvalue()


def decode_pattern(data: bytes) -> MatchedTopics:
    reader = open_value(data)
    value = MatchedTopics(read_texts(reader), reader.int64(), reader.int64())
    reader.tagged_fields()
    return value


def write_texts(writer: Writer, texts: tuple[str, ...]) -> None:
    writer.compact_array_length(len(texts))
    for text in texts:
        writer.compact_string(text)


def read_texts(reader: Reader) -> tuple[str, ...]:
    return tuple(_repeat(reader, reader.compact_string))


def _repeat(reader: Reader, read: Callable[[], str]) -> list[str]:
    return [read() for _ in range(reader.compact_array_length() or 0)]


def write_assignment(writer: Writer, assignment: Assignment) -> None:
    writer.compact_array_length(len(assignment))
    for topic_id in sorted(assignment):
        partitions = assignment[topic_id]
        writer.uuid(topic_id)
        writer.compact_array_length(len(partitions))
        for partition in partitions:
            writer.int32(partition)
        writer.tagged_fields()


def read_assignment(reader: Reader) -> Assignment:
    assignment: Assignment = {}
    for _ in range(reader.compact_array_length() or 0):
        topic_id = reader.uuid()
        count = reader.compact_array_length() or 0
        assignment[topic_id] = tuple(sorted(reader.int32() for _ in range(count)))
        # Kafka 4.3 may add the epochs of each partition; we derive ours.
        reader.tagged_fields()
    return assignment
