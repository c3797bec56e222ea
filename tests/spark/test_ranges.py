"""Offsets as values: JSON that stays the same, limits that starve nobody, splits that fit."""

import json
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model import NO_TOPIC_ID, TopicPartition
from millstream.spark.failure import SourceError
from millstream.spark.ranges import (
    OffsetRange,
    StreamOffset,
    from_json,
    limit_bytes,
    limit_offsets,
    split_ranges,
    to_json,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
PARTITIONS = st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 5))
COUNTS = st.dictionaries(PARTITIONS, st.integers(0, 10_000), min_size=1)


def test_an_offset_comes_back_from_json_and_is_the_same_text() -> None:
    topic_id = uuid.UUID(int=7)
    offset = StreamOffset({B0: 5, A1: 2, A0: 1}, {A0: 0, A1: 2, B0: 5}, {"a": topic_id})
    text = json.dumps(to_json(offset))
    assert text.startswith('{"a": {"0": 1, "1": 2}, "b": {"0": 5}, "@from": {"a"')
    assert from_json(json.loads(text)) == offset
    assert json.dumps(to_json(from_json(json.loads(text)))) == text


def test_offsets_of_sparks_own_source_are_read_too() -> None:
    assert from_json({"a": {"0": 3}}).ends == {A0: 3}


def test_offsets_of_another_source_are_refused() -> None:
    with pytest.raises(SourceError, match="checkpoint"):
        from_json({"fileOffset": 3})


@given(COUNTS, st.integers(1, 5_000))
def test_a_limit_is_kept_but_every_partition_with_news_goes_on(
    counts: dict[TopicPartition, int], limit: int
) -> None:
    starts = dict.fromkeys(counts, 100)
    ends = {partition: 100 + count for partition, count in counts.items()}
    limited = limit_offsets(starts, ends, limit)
    taken = {p: limited[p] - starts[p] for p in counts}
    assert all(0 <= taken[p] <= counts[p] for p in counts)
    assert all(taken[p] > 0 for p in counts if counts[p])
    assert sum(taken.values()) <= limit + len(counts)


def test_a_limit_is_shared_out_by_what_each_partition_has() -> None:
    limited = limit_offsets({A0: 0, A1: 0}, {A0: 900, A1: 100}, 100)
    assert limited == {A0: 90, A1: 10}


def test_bytes_are_limited_by_the_average_record() -> None:
    ends = limit_bytes({A0: 0, A1: 0}, {A0: 1000, A1: 1000}, 55_000, {A0: 100.0, A1: 10.0})
    assert ends == {A0: 500, A1: 500}


def whole(partition: TopicPartition, start: int, end: int) -> OffsetRange:
    return OffsetRange(partition, NO_TOPIC_ID, start, end)


@given(COUNTS, st.one_of(st.none(), st.integers(1, 40)), st.one_of(st.none(), st.integers(1, 999)))
def test_a_split_covers_every_offset_once(
    counts: dict[TopicPartition, int], partitions_min: int | None, records_max: int | None
) -> None:
    ranges = [whole(partition, 5, 5 + count) for partition, count in counts.items()]
    parts = split_ranges(ranges, partitions_min=partitions_min, records_max=records_max)
    for partition, count in counts.items():
        mine = [part for part in parts if part.partition == partition]
        edges = [5] + [part.upto_offset for part in mine]
        assert [part.from_offset for part in mine] == edges[:-1]
        assert edges[-1] == 5 + count
    sizes = [part.upto_offset - part.from_offset for part in parts]
    assert all(size > 0 for size in sizes)
    if records_max is not None:
        assert all(size <= records_max for size in sizes)
    if partitions_min is not None:
        assert len(parts) >= min(partitions_min, sum(counts.values()))
