"""The records of `__share_group_state`: Kafka's ShareSnapshot (0) and ShareUpdate (1), version 0.

A snapshot is all that is known of a share partition; an update is a difference. An update has
the key of all other updates of its partition, so the topic must not be compacted: it is
shortened from its start, once newer snapshots have made the start superfluous.
"""

import base64
import struct
from functools import lru_cache
from typing import Final, NamedTuple
from uuid import UUID

from millstream.coordinators.codecs.table import KeyValue
from millstream.coordinators.share.state_batches import StateBatch
from millstream.encoding import Reader, Writer
from millstream.lazy_dataclass import dataclass

SNAPSHOT_KEY: Final = 0
UPDATE_KEY: Final = 1
_FINISHED_COUNT_TAG: Final = 0
# A start offset that is not decided yet; in an update: unchanged.
NO_START: Final = -1
# How many records are finished is not known: Kafka before 4.2 did not store it.
NO_COUNT: Final = -1
# Version, snapshot epoch, leader epoch and start offset; a range, and the end of its tags.
_UPDATE: Final = struct.Struct(">hiiq")
_RANGE: Final = struct.Struct(">qqbhB")
_NO_TAGS: Final = 0


class ShareKey(NamedTuple):
    """A share partition: a partition as one group sees it."""

    group_id: str
    topic_id: UUID
    partition: int

    @property
    def name(self) -> str:
        """Kafka's, which says which coordinator the partition belongs to."""
        return _name(self)


@lru_cache(maxsize=10_000)
def _name(key: ShareKey) -> str:
    topic_id = base64.urlsafe_b64encode(key.topic_id.bytes).decode().rstrip("=")
    return f"{key.group_id}:{topic_id}:{key.partition}"


@dataclass(frozen=True, slots=True)
class StoredShare:
    """`finished_count` records from `start_offset` on are finished."""

    snapshot_epoch: int
    # Grows whenever an administrator sets the start: then older leaders have to read it again.
    state_epoch: int
    leader_epoch: int
    start_offset: int
    finished_count: int
    created_ms: int
    written_ms: int
    batches: tuple[StateBatch, ...] = ()


@dataclass(frozen=True, slots=True)
class ShareUpdate:
    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    finished_count: int
    batches: tuple[StateBatch, ...]


@dataclass(slots=True)
class SnapshotChange:
    key: ShareKey
    value: StoredShare | None


@dataclass(slots=True)
class UpdateChange:
    key: ShareKey
    value: ShareUpdate


ShareChange = SnapshotChange | UpdateChange


def encode(change: ShareChange) -> KeyValue:
    """Raises ValueError if a value is out of range."""
    if isinstance(change, UpdateChange):
        return _key(UPDATE_KEY, change.key), _encode_update(change.value)
    key = _key(SNAPSHOT_KEY, change.key)
    return key, None if change.value is None else _encode_snapshot(change.value)


@lru_cache(maxsize=10_000)
def _key(kind: int, key: ShareKey) -> bytes:
    writer = Writer()
    writer.int16(kind)
    writer.string(key.group_id)
    writer.uuid(key.topic_id)
    writer.int32(key.partition)
    return writer.getvalue()


def _encode_update(value: ShareUpdate) -> bytes:
    """Written for every acknowledgement, so its numbers are packed together."""
    writer = Writer()
    try:
        writer.raw(_UPDATE.pack(0, value.snapshot_epoch, value.leader_epoch, value.start_offset))
    except struct.error as problem:
        raise ValueError(f"{value}: {problem}") from None
    _write_batches(writer, value.batches)
    _write_finished_count(writer, value.finished_count)
    return writer.getvalue()


def _encode_snapshot(value: StoredShare) -> bytes:
    writer = Writer()
    writer.int16(0)
    writer.int32(value.snapshot_epoch)
    writer.int32(value.state_epoch)
    writer.int32(value.leader_epoch)
    writer.int64(value.start_offset)
    writer.int64(value.created_ms)
    writer.int64(value.written_ms)
    _write_batches(writer, value.batches)
    _write_finished_count(writer, value.finished_count)
    return writer.getvalue()


def _write_finished_count(writer: Writer, count: int) -> None:
    tagged = {} if count == NO_COUNT else {_FINISHED_COUNT_TAG: count.to_bytes(4, "big")}
    writer.tagged_fields(tagged)


def decode(key: bytes, value: bytes | None) -> ShareChange | None:
    """None for kinds that we do not know. Raises ValueError if the bytes are inconsistent."""
    reader = Reader(key)
    kind = reader.int16()
    if kind not in (SNAPSHOT_KEY, UPDATE_KEY):
        return None
    where = ShareKey(reader.string(), reader.uuid(), reader.int32())
    if value is None:
        return SnapshotChange(where, None) if kind == SNAPSHOT_KEY else None
    if kind == SNAPSHOT_KEY:
        return SnapshotChange(where, _read_snapshot(_open(value)))
    return UpdateChange(where, _read_update(_open(value)))


def _open(data: bytes) -> Reader:
    reader = Reader(data)
    version = reader.int16()
    if version != 0:
        raise ValueError(f"a record of share state has version {version}")
    return reader


def _read_snapshot(reader: Reader) -> StoredShare:
    snapshot_epoch, state_epoch, leader_epoch = reader.int32(), reader.int32(), reader.int32()
    start_offset, created_ms, written_ms = reader.int64(), reader.int64(), reader.int64()
    batches = _read_batches(reader)
    return StoredShare(
        snapshot_epoch,
        state_epoch,
        leader_epoch,
        start_offset,
        _read_finished_count(reader),
        created_ms,
        written_ms,
        batches,
    )


def _read_update(reader: Reader) -> ShareUpdate:
    snapshot_epoch, leader_epoch, start_offset = reader.int32(), reader.int32(), reader.int64()
    batches = _read_batches(reader)
    count = _read_finished_count(reader)
    return ShareUpdate(snapshot_epoch, leader_epoch, start_offset, count, batches)


def _read_finished_count(reader: Reader) -> int:
    found = reader.tagged_fields().get(_FINISHED_COUNT_TAG)
    return NO_COUNT if found is None else Reader(found).int32()


def _write_batches(writer: Writer, batches: tuple[StateBatch, ...]) -> None:
    writer.compact_array_length(len(batches))
    try:
        for batch in batches:
            writer.raw(_RANGE.pack(*batch, _NO_TAGS))
    except struct.error as problem:
        raise ValueError(f"{batches}: {problem}") from None


def _read_batches(reader: Reader) -> tuple[StateBatch, ...]:
    batches = []
    for _ in range(reader.compact_array_length() or 0):
        batches.append(StateBatch(reader.int64(), reader.int64(), reader.int8(), reader.int16()))
        reader.tagged_fields()
    return tuple(batches)
