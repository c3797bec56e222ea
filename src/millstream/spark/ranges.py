"""Offsets as plain values: a stream's JSON, the limits of a micro-batch, the split into tasks.

A stream's offset says where every partition ends and, under "@from", where the batch that
ends there began. Spark keeps only ends in its checkpoint. After a crash it asks a source
again for the start of the first batch, when "latest" has moved on; with both in one value
nothing has to be asked again. "@" cannot occur in a topic's name.
"""

import math
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import field

from millstream.lazy_dataclass import dataclass
from millstream.model import TopicPartition
from millstream.spark.failure import SourceError

Offsets = Mapping[TopicPartition, int]
# As Spark stores it: topic, then partition as text, then offset.
JsonOffset = dict[str, dict[str, int | str]]

_FROM = "@from"
_IDS = "@ids"


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """`[from_offset, upto_offset)` of a partition of the topic that has this id."""

    partition: TopicPartition
    topic_id: uuid.UUID
    from_offset: int
    upto_offset: int


@dataclass(frozen=True, slots=True)
class StreamOffset:
    ends: Offsets
    # None if Spark's own source wrote it: there a batch begins where the previous one ended.
    starts: Offsets | None
    # For topics whose broker has ids: a recreated topic has another one.
    ids: Mapping[str, uuid.UUID] = field(default_factory=dict)


def to_json(offset: StreamOffset) -> dict[str, object]:
    """Sorted, because Spark compares the text."""
    value: dict[str, object] = dict(ends_to_json(offset.ends))
    if offset.starts is not None:
        value[_FROM] = ends_to_json(offset.starts)
    if offset.ids:
        value[_IDS] = {topic: str(offset.ids[topic]) for topic in sorted(offset.ids)}
    return value


def ends_to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    value: dict[str, dict[str, int]] = {}
    for partition in sorted(offsets):
        value.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return value


def from_json(value: Mapping[str, object]) -> StreamOffset:
    try:
        ends = {name: rows for name, rows in value.items() if not name.startswith("@")}
        ids = value.get(_IDS, {})
        assert isinstance(ids, Mapping)
        return StreamOffset(
            ends=_offsets(ends),
            starts=_offsets(value[_FROM]) if _FROM in value else None,
            ids={str(topic): uuid.UUID(str(text)) for topic, text in ids.items()},
        )
    except (AssertionError, ValueError, TypeError) as wrong:
        raise SourceError(
            "INVALID_CHECKPOINT",
            f"The checkpoint holds offsets of another source: {value}. Start the query "
            "with another checkpoint location",
        ) from wrong


def _offsets(value: object) -> dict[TopicPartition, int]:
    assert isinstance(value, Mapping)
    found = {}
    for topic, rows in value.items():
        assert isinstance(rows, Mapping)
        for index, offset in rows.items():
            found[TopicPartition(topic, int(index))] = int(offset)
    return found


def limit_offsets(starts: Offsets, ends: Offsets, offsets_max: int) -> dict[TopicPartition, int]:
    """Ends with about `offsets_max` offsets in total, in proportion to what each partition has.

    Every partition with anything new advances by at least one, so that none is starved.
    """
    new = {partition: max(0, ends[partition] - starts[partition]) for partition in ends}
    total = sum(new.values())
    if total <= offsets_max:
        return dict(ends)
    limited = {}
    for partition, count in new.items():
        share = offsets_max * count / total
        taken = math.ceil(share) if share < 1 else math.floor(share)
        limited[partition] = min(ends[partition], starts[partition] + taken)
    return limited


def limit_bytes(
    starts: Offsets, ends: Offsets, bytes_max: int, bytes_per_offset: Mapping[TopicPartition, float]
) -> dict[TopicPartition, int]:
    """Ends with about `bytes_max` bytes in total, where an offset has its partition's average size.

    Every partition gives the same part of what it has, rounded up to whole offsets. So none is
    starved, and the total may exceed the limit by up to one record of each.
    """
    sizes = {p: max(0, ends[p] - starts[p]) * bytes_per_offset.get(p, 0.0) for p in ends}
    total = sum(sizes.values())
    if total <= bytes_max:
        return dict(ends)
    limited = {}
    for partition, end in ends.items():
        start = starts[partition]
        taken = math.ceil(max(0, end - start) * bytes_max / total)
        limited[partition] = min(end, start + taken)
    return limited


def split_ranges(
    ranges: Sequence[OffsetRange], *, partitions_min: int | None, records_max: int | None
) -> list[OffsetRange]:
    """Ranges for tasks: none empty, none above `records_max`, at least `partitions_min`."""
    parts: list[OffsetRange] = []
    for each in ranges:
        count = each.upto_offset - each.from_offset
        if count > 0:
            parts += _divide(each, 1 if records_max is None else math.ceil(count / records_max))
    if not parts or partitions_min is None or len(parts) >= partitions_min:
        return parts
    total = sum(part.upto_offset - part.from_offset for part in parts)
    split = []
    for part in parts:
        share = (part.upto_offset - part.from_offset) * partitions_min / total
        split += _divide(part, max(1, math.ceil(share)))
    return split


def _divide(whole: OffsetRange, count: int) -> list[OffsetRange]:
    """`count` parts of nearly the same size, or fewer if there are fewer offsets."""
    size = whole.upto_offset - whole.from_offset
    count = min(count, size)
    edges = [whole.from_offset + size * index // count for index in range(count + 1)]
    return [
        OffsetRange(whole.partition, whole.topic_id, edges[index], edges[index + 1])
        for index in range(count)
    ]
