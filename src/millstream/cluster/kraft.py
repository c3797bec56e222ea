"""Reads the metadata of a Kafka node: the log and snapshots of `__cluster_metadata-0`.

Only reads, never writes: Kafka must find its metadata unchanged. A snapshot holds
everything below its offset, the log what follows. Values of records begin with a frame
version, the type of the record and that type's version. Types that are not about topics,
options or producer ids are counted and skipped.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from millstream.encoding import Reader
from millstream.errors import StartError
from millstream.model import TopicId
from millstream.records.batch import HEADER_BYTES, BatchView
from millstream.records.records import iterate_records

METADATA_DIRECTORY: Final = "__cluster_metadata-0"

_SNAPSHOT_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_SEGMENT_NAME: Final = re.compile(r"(\d{20})\.log")
_FRAME_VERSION: Final = 1
_BATCH_BYTES_MAX: Final = 512 * 1024 * 1024
# Types whose loss is reported to the user.
_LEFT_OUT: Final[Mapping[int, str]] = {
    10: "delegation tokens",
    11: "SCRAM credentials",
    14: "client quotas",
    18: "access rules",
}
_TOPIC_RESOURCE: Final = 2
_BROKER_RESOURCE: Final = 4


@dataclass(slots=True)
class KraftPartition:
    replicas: tuple[int, ...]
    leader_epoch: int


@dataclass(slots=True)
class KraftTopic:
    name: str
    topic_id: TopicId
    partitions: dict[int, KraftPartition] = field(default_factory=dict)


@dataclass(slots=True)
class KraftMetadata:
    """The sum of the records. Options of all nodes are under None."""

    topics: dict[TopicId, KraftTopic] = field(default_factory=dict)
    topic_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    broker_configs: dict[int | None, dict[str, str]] = field(default_factory=dict)
    next_producer_id: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    # Bytes after the last whole batch: Kafka was stopped in the middle of a write.
    torn_bytes: int = 0


def read_kraft_metadata(directory: Path) -> KraftMetadata | None:
    """The metadata below a data directory, None if it has none. Raises StartError."""
    source = directory / METADATA_DIRECTORY
    if not source.is_dir():
        return None
    metadata = KraftMetadata()
    replay = _Replay(metadata)
    snapshots = _named(source, _SNAPSHOT_NAME)
    segments = _named(source, _SEGMENT_NAME)
    next_offset = 0
    try:
        if snapshots:
            next_offset = int(snapshots[-1].name[:20])
            for _, value in _values(snapshots[-1], metadata):
                replay.record(value)
        if segments and int(segments[0].name[:20]) > next_offset:
            raise ValueError(f"nothing is there for offsets {next_offset} and up")
        for segment in segments:
            if metadata.torn_bytes:
                raise ValueError(f"{segment.name} follows a broken batch")
            for offset, value in _values(segment, metadata):
                if offset >= next_offset:
                    replay.record(value)
    except (OSError, ValueError) as problem:
        raise StartError(f"{source}: Kafka's metadata cannot be read: {problem}") from None
    return metadata


class _Replay:
    """Applies records in order; those of a metadata transaction only once it ends (KIP-868)."""

    def __init__(self, metadata: KraftMetadata) -> None:
        self._metadata = metadata
        self._pending: list[bytes] | None = None
        self._readers: Mapping[int, Callable[[Reader, int], None]] = {
            2: self._topic,
            3: self._partition,
            4: self._config,
            5: self._partition_change,
            9: self._remove_topic,
            15: self._producer_ids,
        }

    def record(self, value: bytes) -> None:
        kind = _frame(Reader(value))
        if kind == 23:
            self._pending = []
        elif kind == 24:
            pending, self._pending = self._pending or [], None
            for held in pending:
                self._apply(held)
        elif kind == 25:
            self._pending = None
        elif self._pending is not None:
            self._pending.append(value)
        else:
            self._apply(value)

    def _apply(self, value: bytes) -> None:
        reader = Reader(value)
        kind = _frame(reader)
        version = reader.unsigned_varint()
        if kind in _LEFT_OUT:
            self._metadata.left_out[_LEFT_OUT[kind]] += 1
        read = self._readers.get(kind)
        if read is not None:
            read(reader, version)

    def _topic(self, reader: Reader, version: int) -> None:
        _known(version, newest=0)
        name = reader.compact_string()
        topic_id = reader.uuid()
        self._metadata.topics[topic_id] = KraftTopic(name, topic_id)

    def _partition(self, reader: Reader, version: int) -> None:
        _known(version, newest=2)
        number = reader.int32()
        topic = self._found(reader.uuid())
        replicas = _integers(reader)
        for _ in ("isr", "removing", "adding"):
            _integers(reader)
        reader.int32()
        topic.partitions[number] = KraftPartition(replicas, leader_epoch=reader.int32())

    def _partition_change(self, reader: Reader, version: int) -> None:
        _known(version, newest=2)
        number = reader.int32()
        partition = self._found(reader.uuid()).partitions.get(number)
        if partition is None:
            raise ValueError(f"a record changes partition {number}, which is not there")
        changed = reader.tagged_fields()
        # A change that names a leader, even the same one, begins a new epoch.
        if 1 in changed:
            partition.leader_epoch += 1
        if 2 in changed:
            partition.replicas = _integers(Reader(changed[2]))

    def _config(self, reader: Reader, version: int) -> None:
        _known(version, newest=0)
        kind = reader.int8()
        resource = reader.compact_string()
        name = reader.compact_string()
        value = reader.compact_nullable_string()
        if kind == _TOPIC_RESOURCE:
            configs = self._metadata.topic_configs.setdefault(resource, {})
        elif kind == _BROKER_RESOURCE:
            broker_id = int(resource) if resource else None
            configs = self._metadata.broker_configs.setdefault(broker_id, {})
        else:
            return
        if value is None:
            configs.pop(name, None)
        else:
            configs[name] = value

    def _remove_topic(self, reader: Reader, version: int) -> None:
        _known(version, newest=0)
        topic = self._metadata.topics.pop(reader.uuid(), None)
        if topic is not None:
            self._metadata.topic_configs.pop(topic.name, None)

    def _producer_ids(self, reader: Reader, version: int) -> None:
        _known(version, newest=0)
        reader.int32()
        reader.int64()
        self._metadata.next_producer_id = reader.int64()

    def _found(self, topic_id: TopicId) -> KraftTopic:
        topic = self._metadata.topics.get(topic_id)
        if topic is None:
            raise ValueError(f"a record speaks of topic {topic_id}, which is not there")
        return topic


def _frame(reader: Reader) -> int:
    """The record's type; its version comes next."""
    frame_version = reader.unsigned_varint()
    if frame_version != _FRAME_VERSION:
        raise ValueError(f"a record has frame version {frame_version}, which is too new")
    return reader.unsigned_varint()


def _known(version: int, *, newest: int) -> None:
    # A newer version may have moved the fields we rely on; guessing could lose a topic.
    if version > newest:
        raise ValueError(f"a record has version {version}, {newest} is the newest we know")


def _integers(reader: Reader) -> tuple[int, ...]:
    return tuple(reader.int32() for _ in range(reader.compact_array_length() or 0))


def _values(path: Path, metadata: KraftMetadata) -> Iterator[tuple[int, bytes]]:
    """Offsets and values of the records in a file, up to the first incomplete batch."""
    data = memoryview(path.read_bytes())
    position = 0
    while position < len(data):
        batch = _whole_batch(data[position:])
        if batch is None:
            metadata.torn_bytes = len(data) - position
            return
        if not batch.is_control:
            for record in iterate_records(batch, limit_bytes=_BATCH_BYTES_MAX):
                if record.value is not None:
                    yield record.offset, record.value
        position += batch.size_bytes


def _whole_batch(data: memoryview) -> BatchView | None:
    if len(data) < HEADER_BYTES:
        return None
    batch = BatchView(data)
    if not HEADER_BYTES <= batch.size_bytes <= len(data) or not batch.crc_is_valid():
        return None
    return batch


def _named(directory: Path, pattern: re.Pattern[str]) -> list[Path]:
    return sorted(path for path in directory.iterdir() if pattern.fullmatch(path.name))
