"""Lag is what is there and not yet read, by partition, from Spark's own progress."""

from dataclasses import dataclass

from millstream.model import TopicPartition
from millstream.spark import lag


@dataclass
class Source:
    endOffset: str | None
    latestOffset: str | None


@dataclass
class Progress:
    sources: list[Source]


@dataclass
class Query:
    lastProgress: Progress | None


def test_lag_is_the_latest_offset_less_the_end() -> None:
    source = Source(
        '{"t": {"0": 5, "1": 7}, "@from": {"t": {"0": 0, "1": 0}}, "@ids": {"t": "x"}}',
        '{"t": {"0": 15, "1": 7}}',
    )
    found = lag(Query(Progress([source])))
    assert found is not None
    assert found.by_partition == {TopicPartition("t", 0): 10, TopicPartition("t", 1): 0}
    assert (found.total, found.largest) == (10, 10)


def test_there_is_none_before_the_first_progress_and_for_other_sources() -> None:
    assert lag(Query(None)) is None
    other = lag(Query(Progress([Source("5", "7"), Source(None, None), Source("{", "")])))
    assert other is not None
    assert other.total == 0
