"""Streams groups (KIP-1071): the values of record kinds 17 and 19 to 23, all in version 0.

Values are flexible. Tasks are written in the order of subtopologies and partitions, so that
the same state always gives the same bytes.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from millstream.coordinators.codecs.streams_changes import (
    CopartitionGroup,
    CurrentTasks,
    Endpoint,
    InternalTopic,
    OwnedTasks,
    StoredStreamsGroup,
    StoredStreamsMember,
    StoredStreamsTarget,
    StreamsMemberState,
    Subtopology,
    TaskAssignment,
    TaskEpochs,
    Tasks,
    Topology,
)
from millstream.encoding import Reader, Writer

T = TypeVar("T")
_VALIDATED_TAG: Final = 0
_CONFIGS_TAG: Final = 1
_TIMESTAMP_TAG: Final = 0
_EPOCHS_TAG: Final = 0
_NOT_VALIDATED: Final = -1
# Before a structure that may be missing.
_IS_NULL, _IS_THERE = -1, 1


def _begin() -> Writer:
    writer = Writer()
    writer.int16(0)
    return writer


def _open(data: bytes) -> Reader:
    reader = Reader(data)
    version = reader.int16()
    if version != 0:
        raise ValueError(f"a streams group's record has version {version}")
    return reader


def encode_group(value: StoredStreamsGroup) -> bytes:
    writer = _begin()
    writer.int32(value.epoch)
    writer.int64(value.metadata_hash)
    configs = Writer()
    _write_pairs(configs, tuple(value.assignment_configs.items()))
    tagged = {_CONFIGS_TAG: configs.getvalue()}
    if value.validated_topology_epoch != _NOT_VALIDATED:
        tagged[_VALIDATED_TAG] = value.validated_topology_epoch.to_bytes(4, "big", signed=True)
    writer.tagged_fields(tagged)
    return writer.getvalue()


def decode_group(data: bytes) -> StoredStreamsGroup:
    reader = _open(data)
    epoch, metadata_hash = reader.int32(), reader.int64()
    tagged = reader.tagged_fields()
    validated, configs = tagged.get(_VALIDATED_TAG), tagged.get(_CONFIGS_TAG)
    return StoredStreamsGroup(
        epoch,
        metadata_hash,
        _NOT_VALIDATED if validated is None else Reader(validated).int32(),
        {} if configs is None else dict(_read_pairs(Reader(configs))),
    )


def encode_target(value: StoredStreamsTarget) -> bytes:
    writer = _begin()
    writer.int32(value.epoch)
    timestamp = value.timestamp_ms.to_bytes(8, "big", signed=True)
    writer.tagged_fields({_TIMESTAMP_TAG: timestamp} if value.timestamp_ms else {})
    return writer.getvalue()


def decode_target(data: bytes) -> StoredStreamsTarget:
    reader = _open(data)
    epoch = reader.int32()
    timestamp = reader.tagged_fields().get(_TIMESTAMP_TAG)
    return StoredStreamsTarget(epoch, 0 if timestamp is None else Reader(timestamp).int64())


def encode_member(value: StoredStreamsMember) -> bytes:
    writer = _begin()
    writer.compact_nullable_string(value.instance_id)
    writer.compact_nullable_string(value.rack_id)
    writer.compact_string(value.client_id)
    writer.compact_string(value.client_host)
    writer.int32(value.rebalance_timeout_ms)
    writer.int32(value.topology_epoch)
    writer.compact_string(value.process_id)
    if value.endpoint is None:
        writer.int8(_IS_NULL)
    else:
        writer.int8(_IS_THERE)
        writer.compact_string(value.endpoint.host)
        writer.uint16(value.endpoint.port)
        writer.tagged_fields()
    _write_pairs(writer, value.client_tags)
    writer.tagged_fields()
    return writer.getvalue()


def decode_member(data: bytes) -> StoredStreamsMember:
    reader = _open(data)
    instance_id, rack_id = reader.compact_nullable_string(), reader.compact_nullable_string()
    client_id, client_host = reader.compact_string(), reader.compact_string()
    rebalance_timeout_ms, topology_epoch = reader.int32(), reader.int32()
    process_id = reader.compact_string()
    endpoint = None
    if reader.int8() != _IS_NULL:
        endpoint = Endpoint(reader.compact_string(), reader.uint16())
        reader.tagged_fields()
    client_tags = _read_pairs(reader)
    reader.tagged_fields()
    return StoredStreamsMember(
        instance_id,
        rack_id,
        client_id,
        client_host,
        rebalance_timeout_ms,
        topology_epoch,
        process_id,
        endpoint,
        tuple(sorted(client_tags)),
    )


# -- tasks ----------------------------------------------------------------------------


def encode_target_member(value: TaskAssignment) -> bytes:
    writer = _begin()
    for tasks in (value.active, value.standby, value.warmup):
        _write_tasks(writer, tasks)
    writer.tagged_fields()
    return writer.getvalue()


def decode_target_member(data: bytes) -> TaskAssignment:
    reader = _open(data)
    value = TaskAssignment(_read_tasks(reader), _read_tasks(reader), _read_tasks(reader))
    reader.tagged_fields()
    return value


def encode_current_member(value: CurrentTasks) -> bytes:
    writer = _begin()
    writer.int32(value.epoch)
    writer.int32(value.previous_epoch)
    writer.int8(value.state)
    for owned in (value.assigned, value.revoking):
        _write_task_epochs(writer, owned.active)
        _write_tasks(writer, owned.standby)
        _write_tasks(writer, owned.warmup)
    writer.tagged_fields()
    return writer.getvalue()


def decode_current_member(data: bytes) -> CurrentTasks:
    reader = _open(data)
    epoch, previous_epoch, number = reader.int32(), reader.int32(), reader.int8()
    known = number in StreamsMemberState.__members__.values()
    value = CurrentTasks(
        epoch,
        previous_epoch,
        StreamsMemberState(number) if known else StreamsMemberState.UNKNOWN,
        _read_owned(reader, epoch),
        _read_owned(reader, epoch),
    )
    reader.tagged_fields()
    return value


def _read_owned(reader: Reader, member_epoch: int) -> OwnedTasks:
    active = _read_task_epochs(reader, member_epoch)
    return OwnedTasks(active, _read_tasks(reader), _read_tasks(reader))


def _write_tasks(writer: Writer, tasks: Tasks) -> None:
    writer.compact_array_length(len(tasks))
    for subtopology_id in sorted(tasks):
        writer.compact_string(subtopology_id)
        _write_numbers(writer, tasks[subtopology_id])
        writer.tagged_fields()


def _read_tasks(reader: Reader) -> Tasks:
    tasks: Tasks = {}
    for _ in range(reader.compact_array_length() or 0):
        subtopology_id = reader.compact_string()
        tasks[subtopology_id] = tuple(sorted(_read_numbers(reader)))
        reader.tagged_fields()
    return tasks


def _write_task_epochs(writer: Writer, tasks: TaskEpochs) -> None:
    writer.compact_array_length(len(tasks))
    for subtopology_id in sorted(tasks):
        partitions = sorted(tasks[subtopology_id])
        writer.compact_string(subtopology_id)
        _write_numbers(writer, tuple(partitions))
        epochs = Writer()
        _write_numbers(epochs, tuple(tasks[subtopology_id][each] for each in partitions))
        writer.tagged_fields({_EPOCHS_TAG: epochs.getvalue()})


def _read_task_epochs(reader: Reader, member_epoch: int) -> TaskEpochs:
    tasks: TaskEpochs = {}
    for _ in range(reader.compact_array_length() or 0):
        subtopology_id = reader.compact_string()
        partitions = _read_numbers(reader)
        tagged = reader.tagged_fields().get(_EPOCHS_TAG)
        epochs = () if tagged is None else _read_numbers(Reader(tagged))
        if len(epochs) != len(partitions):
            # Written before Kafka 4.3, or damaged: the member's own epoch is the best guess.
            epochs = (member_epoch,) * len(partitions)
        tasks[subtopology_id] = dict(sorted(zip(partitions, epochs, strict=True)))
    return tasks


# -- the topology ---------------------------------------------------------------------


def encode_topology(value: Topology) -> bytes:
    writer = _begin()
    writer.int32(value.epoch)
    writer.compact_array_length(len(value.subtopologies))
    for subtopology in value.subtopologies:
        writer.compact_string(subtopology.subtopology_id)
        _write_texts(writer, subtopology.source_topics)
        _write_texts(writer, subtopology.source_topic_patterns)
        _write_topics(writer, subtopology.changelog_topics)
        _write_texts(writer, subtopology.repartition_sink_topics)
        _write_topics(writer, subtopology.repartition_source_topics)
        writer.compact_array_length(len(subtopology.copartition_groups))
        for group in subtopology.copartition_groups:
            _write_positions(writer, group.source_topics)
            _write_positions(writer, group.source_topic_patterns)
            _write_positions(writer, group.repartition_source_topics)
            writer.tagged_fields()
        writer.tagged_fields()
    writer.tagged_fields()
    return writer.getvalue()


def decode_topology(data: bytes) -> Topology:
    reader = _open(data)
    epoch = reader.int32()
    value = Topology(epoch, _repeat(reader, lambda: _read_subtopology(reader)))
    reader.tagged_fields()
    return value


def _read_subtopology(reader: Reader) -> Subtopology:
    value = Subtopology(
        reader.compact_string(),
        _read_texts(reader),
        _read_texts(reader),
        _read_topics(reader),
        _read_texts(reader),
        _read_topics(reader),
        _repeat(reader, lambda: _read_copartition_group(reader)),
    )
    reader.tagged_fields()
    return value


def _read_copartition_group(reader: Reader) -> CopartitionGroup:
    value = CopartitionGroup(
        _repeat(reader, reader.int16),
        _repeat(reader, reader.int16),
        _repeat(reader, reader.int16),
    )
    reader.tagged_fields()
    return value


def _write_topics(writer: Writer, topics: tuple[InternalTopic, ...]) -> None:
    writer.compact_array_length(len(topics))
    for topic in topics:
        writer.compact_string(topic.name)
        writer.int32(topic.partitions)
        writer.int16(topic.replication_factor)
        _write_pairs(writer, topic.configs)
        writer.tagged_fields()


def _read_topics(reader: Reader) -> tuple[InternalTopic, ...]:
    return _repeat(reader, lambda: _read_topic(reader))


def _read_topic(reader: Reader) -> InternalTopic:
    value = InternalTopic(
        reader.compact_string(), reader.int32(), reader.int16(), _read_pairs(reader)
    )
    reader.tagged_fields()
    return value


# -- lists ----------------------------------------------------------------------------


def _repeat(reader: Reader, read: Callable[[], T]) -> tuple[T, ...]:
    return tuple(read() for _ in range(reader.compact_array_length() or 0))


def _write_texts(writer: Writer, texts: tuple[str, ...]) -> None:
    writer.compact_array_length(len(texts))
    for text in texts:
        writer.compact_string(text)


def _read_texts(reader: Reader) -> tuple[str, ...]:
    return _repeat(reader, reader.compact_string)


def _write_numbers(writer: Writer, numbers: tuple[int, ...]) -> None:
    writer.compact_array_length(len(numbers))
    for number in numbers:
        writer.int32(number)


def _read_numbers(reader: Reader) -> tuple[int, ...]:
    return _repeat(reader, reader.int32)


def _write_positions(writer: Writer, positions: tuple[int, ...]) -> None:
    writer.compact_array_length(len(positions))
    for position in positions:
        writer.int16(position)


def _write_pairs(writer: Writer, pairs: tuple[tuple[str, str], ...]) -> None:
    writer.compact_array_length(len(pairs))
    for key, value in pairs:
        writer.compact_string(key)
        writer.compact_string(value)
        writer.tagged_fields()


def _read_pairs(reader: Reader) -> tuple[tuple[str, str], ...]:
    return _repeat(reader, lambda: _read_pair(reader))


def _read_pair(reader: Reader) -> tuple[str, str]:
    pair = (reader.compact_string(), reader.compact_string())
    reader.tagged_fields()
    return pair
