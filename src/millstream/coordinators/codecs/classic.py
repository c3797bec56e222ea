"""Classic groups: Kafka's GroupMetadataKey and GroupMetadataValue 0-4. We write version 3."""

from typing import Final

from millstream.coordinators.codecs.changes import StoredGroup, StoredMember
from millstream.encoding import Reader, Writer

WRITTEN_VERSION: Final = 3
_FLEXIBLE_FROM: Final = 4


def encode_group(value: StoredGroup) -> bytes:
    writer = Writer()
    writer.int16(WRITTEN_VERSION)
    writer.string(value.protocol_type)
    writer.int32(value.generation)
    writer.nullable_string(value.protocol_name)
    writer.nullable_string(value.leader_id)
    writer.int64(value.state_timestamp_ms)
    writer.array_length(len(value.members))
    for member in value.members:
        writer.string(member.member_id)
        writer.nullable_string(member.instance_id)
        writer.string(member.client_id)
        writer.string(member.client_host)
        writer.int32(member.rebalance_timeout_ms)
        writer.int32(member.session_timeout_ms)
        writer.bytes(member.subscription)
        writer.bytes(member.assignment)
    return writer.getvalue()


def decode_group(data: bytes) -> StoredGroup:
    reader = Reader(data)
    version = reader.int16()
    if not 0 <= version <= _FLEXIBLE_FROM:
        raise ValueError(f"a group has version {version}")
    if version >= _FLEXIBLE_FROM:
        return _decode_flexible(reader)
    value = StoredGroup(
        protocol_type=reader.string(),
        generation=reader.int32(),
        protocol_name=reader.nullable_string(),
        leader_id=reader.nullable_string(),
        state_timestamp_ms=reader.int64() if version >= 2 else -1,
    )
    for _ in range(reader.array_length() or 0):
        value.members.append(_decode_member(reader, version))
    return value


def _decode_member(reader: Reader, version: int) -> StoredMember:
    member_id = reader.string()
    instance_id = reader.nullable_string() if version >= 3 else None
    client_id, client_host = reader.string(), reader.string()
    rebalance_timeout_ms = reader.int32() if version >= 1 else -1
    session_timeout_ms = reader.int32()
    return StoredMember(
        member_id=member_id,
        instance_id=instance_id,
        client_id=client_id,
        client_host=client_host,
        # Version 0 has one timeout for both.
        rebalance_timeout_ms=rebalance_timeout_ms if version >= 1 else session_timeout_ms,
        session_timeout_ms=session_timeout_ms,
        subscription=bytes(reader.bytes()),
        assignment=bytes(reader.bytes()),
    )


def _decode_flexible(reader: Reader) -> StoredGroup:
    value = StoredGroup(
        protocol_type=reader.compact_string(),
        generation=reader.int32(),
        protocol_name=reader.compact_nullable_string(),
        leader_id=reader.compact_nullable_string(),
        state_timestamp_ms=reader.int64(),
    )
    for _ in range(reader.compact_array_length() or 0):
        value.members.append(
            StoredMember(
                member_id=reader.compact_string(),
                instance_id=reader.compact_nullable_string(),
                client_id=reader.compact_string(),
                client_host=reader.compact_string(),
                rebalance_timeout_ms=reader.int32(),
                session_timeout_ms=reader.int32(),
                subscription=bytes(reader.compact_bytes()),
                assignment=bytes(reader.compact_bytes()),
            )
        )
        reader.tagged_fields()
    reader.tagged_fields()
    return value
