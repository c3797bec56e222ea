"""From a change to the key and value of its record, and back."""

from typing import assert_never

from millstream.coordinators.codecs import classic, consumer, offsets, share, streams
from millstream.coordinators.codecs.changes import (
    Change,
    ConsumerGroupChange,
    CurrentMemberChange,
    GroupChange,
    MemberChange,
    OffsetChange,
    PartitionMetadataChange,
    PatternChange,
    RecordKind,
    ShareCurrentMemberChange,
    ShareGroupChange,
    ShareMemberChange,
    SharePartitionsChange,
    ShareTargetChange,
    ShareTargetMemberChange,
    TargetChange,
    TargetMemberChange,
)
from millstream.coordinators.codecs.streams_changes import (
    StreamsChange,
    StreamsCurrentMemberChange,
    StreamsGroupChange,
    StreamsMemberChange,
    StreamsTargetChange,
    StreamsTargetMemberChange,
    TopologyChange,
)
from millstream.encoding import Reader, Writer

KeyValue = tuple[bytes, bytes | None]


def encode(change: Change) -> KeyValue:
    if isinstance(change, OffsetChange):
        value = change.value
        return (
            offsets.encode_offset_key(change.group_id, change.topic, change.partition),
            None if value is None else offsets.encode_offset_value(value),
        )
    return _encode_key(change), _encode_value(change)


def _encode_key(change: Change) -> bytes:
    match change:
        case GroupChange():
            return _key(RecordKind.GROUP, change.group_id)
        case ConsumerGroupChange():
            return _key(RecordKind.CONSUMER_GROUP, change.group_id)
        case PartitionMetadataChange():
            return _key(RecordKind.PARTITION_METADATA, change.group_id)
        case MemberChange():
            return _key(RecordKind.MEMBER, change.group_id, change.member_id)
        case TargetChange():
            return _key(RecordKind.TARGET, change.group_id)
        case TargetMemberChange():
            return _key(RecordKind.TARGET_MEMBER, change.group_id, change.member_id)
        case CurrentMemberChange():
            return _key(RecordKind.CURRENT_MEMBER, change.group_id, change.member_id)
        case PatternChange():
            return _key(RecordKind.PATTERN, change.group_id, change.pattern)
        case ShareGroupChange():
            return _key(RecordKind.SHARE_GROUP, change.group_id)
        case ShareMemberChange():
            return _key(RecordKind.SHARE_MEMBER, change.group_id, change.member_id)
        case ShareTargetChange():
            return _key(RecordKind.SHARE_TARGET, change.group_id)
        case ShareTargetMemberChange():
            return _key(RecordKind.SHARE_TARGET_MEMBER, change.group_id, change.member_id)
        case ShareCurrentMemberChange():
            return _key(RecordKind.SHARE_CURRENT_MEMBER, change.group_id, change.member_id)
        case SharePartitionsChange():
            return _key(RecordKind.SHARE_PARTITIONS, change.group_id)
        case OffsetChange():
            raise AssertionError("offsets have their own key")
        case _:
            return _encode_streams_key(change)


def _encode_streams_key(change: StreamsChange) -> bytes:
    match change:
        case StreamsGroupChange():
            return _key(RecordKind.STREAMS_GROUP, change.group_id)
        case StreamsMemberChange():
            return _key(RecordKind.STREAMS_MEMBER, change.group_id, change.member_id)
        case StreamsTargetChange():
            return _key(RecordKind.STREAMS_TARGET, change.group_id)
        case StreamsTargetMemberChange():
            return _key(RecordKind.STREAMS_TARGET_MEMBER, change.group_id, change.member_id)
        case StreamsCurrentMemberChange():
            return _key(RecordKind.STREAMS_CURRENT_MEMBER, change.group_id, change.member_id)
        case TopologyChange():
            return _key(RecordKind.STREAMS_TOPOLOGY, change.group_id)
        case _:
            assert_never(change)


def _encode_value(change: Change) -> bytes | None:
    if isinstance(change, PartitionMetadataChange) or change.value is None:
        return None
    match change:
        case GroupChange():
            return classic.encode_group(change.value)
        case ConsumerGroupChange():
            return consumer.encode_consumer_group(change.value)
        case MemberChange():
            return consumer.encode_member(change.value)
        case TargetChange():
            return consumer.encode_target(change.value)
        case TargetMemberChange():
            return consumer.encode_target_member(change.value)
        case CurrentMemberChange():
            return consumer.encode_current_member(change.value)
        case PatternChange():
            return consumer.encode_pattern(change.value)
        case ShareGroupChange():
            return share.encode_group(change.value)
        case ShareMemberChange():
            return share.encode_member(change.value)
        case ShareTargetChange():
            return consumer.encode_target(change.value)
        case ShareTargetMemberChange():
            return consumer.encode_target_member(change.value)
        case ShareCurrentMemberChange():
            return share.encode_current_member(change.value)
        case SharePartitionsChange():
            return share.encode_partitions(change.value)
        case OffsetChange():
            return offsets.encode_offset_value(change.value)
        case _:
            return _encode_streams_value(change)


def _encode_streams_value(change: StreamsChange) -> bytes | None:
    if change.value is None:
        return None
    match change:
        case StreamsGroupChange():
            return streams.encode_group(change.value)
        case StreamsMemberChange():
            return streams.encode_member(change.value)
        case StreamsTargetChange():
            return streams.encode_target(change.value)
        case StreamsTargetMemberChange():
            return streams.encode_target_member(change.value)
        case StreamsCurrentMemberChange():
            return streams.encode_current_member(change.value)
        case TopologyChange():
            return streams.encode_topology(change.value)
        case _:
            assert_never(change)


def _key(kind: RecordKind, *texts: str) -> bytes:
    writer = Writer()
    writer.int16(kind)
    for text in texts:
        writer.string(text)
    return writer.getvalue()


def decode(key: bytes, value: bytes | None) -> Change | None:
    """The change; None for kinds that we do not store, such as those of streams groups.

    Raises ValueError if the bytes are inconsistent.
    """
    reader = Reader(key)
    kind = reader.int16()
    match kind:
        case RecordKind.OFFSET | RecordKind.LEGACY_OFFSET:
            group_id, topic, partition = offsets.decode_offset_key(reader)
            committed = None if value is None else offsets.decode_offset_value(value)
            return OffsetChange(group_id, topic, partition, committed)
        case RecordKind.GROUP:
            stored = None if value is None else classic.decode_group(value)
            return GroupChange(reader.string(), stored)
        case _:
            return _decode_consumer(kind, reader, value)


def _decode_consumer(kind: int, reader: Reader, value: bytes | None) -> Change | None:
    match kind:
        case RecordKind.CONSUMER_GROUP:
            group = None if value is None else consumer.decode_consumer_group(value)
            return ConsumerGroupChange(reader.string(), group)
        case RecordKind.PARTITION_METADATA:
            return PartitionMetadataChange(reader.string())
        case RecordKind.MEMBER:
            member = None if value is None else consumer.decode_member(value)
            return MemberChange(reader.string(), reader.string(), member)
        case RecordKind.TARGET:
            target = None if value is None else consumer.decode_target(value)
            return TargetChange(reader.string(), target)
        case RecordKind.TARGET_MEMBER:
            assignment = None if value is None else consumer.decode_target_member(value)
            return TargetMemberChange(reader.string(), reader.string(), assignment)
        case RecordKind.CURRENT_MEMBER:
            current = None if value is None else consumer.decode_current_member(value)
            return CurrentMemberChange(reader.string(), reader.string(), current)
        case RecordKind.PATTERN:
            matched = None if value is None else consumer.decode_pattern(value)
            return PatternChange(reader.string(), reader.string(), matched)
        case _:
            return _decode_share(kind, reader, value)


def _decode_share(kind: int, reader: Reader, value: bytes | None) -> Change | None:
    match kind:
        case RecordKind.SHARE_GROUP:
            group = None if value is None else share.decode_group(value)
            return ShareGroupChange(reader.string(), group)
        case RecordKind.SHARE_MEMBER:
            member = None if value is None else share.decode_member(value)
            return ShareMemberChange(reader.string(), reader.string(), member)
        case RecordKind.SHARE_TARGET:
            target = None if value is None else consumer.decode_target(value)
            return ShareTargetChange(reader.string(), target)
        case RecordKind.SHARE_TARGET_MEMBER:
            assignment = None if value is None else consumer.decode_target_member(value)
            return ShareTargetMemberChange(reader.string(), reader.string(), assignment)
        case RecordKind.SHARE_CURRENT_MEMBER:
            current = None if value is None else share.decode_current_member(value)
            return ShareCurrentMemberChange(reader.string(), reader.string(), current)
        case RecordKind.SHARE_PARTITIONS:
            topics = None if value is None else share.decode_partitions(value)
            return SharePartitionsChange(reader.string(), topics)
        case _:
            return _decode_streams(kind, reader, value)


def _decode_streams(kind: int, reader: Reader, value: bytes | None) -> Change | None:
    match kind:
        case RecordKind.STREAMS_GROUP:
            group = None if value is None else streams.decode_group(value)
            return StreamsGroupChange(reader.string(), group)
        case RecordKind.STREAMS_MEMBER:
            member = None if value is None else streams.decode_member(value)
            return StreamsMemberChange(reader.string(), reader.string(), member)
        case RecordKind.STREAMS_TARGET:
            target = None if value is None else streams.decode_target(value)
            return StreamsTargetChange(reader.string(), target)
        case RecordKind.STREAMS_TARGET_MEMBER:
            tasks = None if value is None else streams.decode_target_member(value)
            return StreamsTargetMemberChange(reader.string(), reader.string(), tasks)
        case RecordKind.STREAMS_CURRENT_MEMBER:
            current = None if value is None else streams.decode_current_member(value)
            return StreamsCurrentMemberChange(reader.string(), reader.string(), current)
        case RecordKind.STREAMS_TOPOLOGY:
            topology = None if value is None else streams.decode_topology(value)
            return TopologyChange(reader.string(), topology)
        case _:
            return None
