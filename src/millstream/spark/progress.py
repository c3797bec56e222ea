"""How far a streaming query is behind, from Spark's own progress reports.

Spark has no metrics for a Python source, but it keeps the two offsets to compute them.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from millstream.model import TopicPartition


class _Source(Protocol):
    @property
    def endOffset(self) -> str | None: ...
    @property
    def latestOffset(self) -> str | None: ...


class _Progress(Protocol):
    @property
    def sources(self) -> Sequence[_Source]: ...


class _Query(Protocol):
    @property
    def lastProgress(self) -> _Progress | None: ...


@dataclass(frozen=True, slots=True)
class Lag:
    """Existing offsets that are not yet in a finished batch."""

    by_partition: Mapping[TopicPartition, int]

    @property
    def total(self) -> int:
        return sum(self.by_partition.values())

    @property
    def largest(self) -> int:
        return max(self.by_partition.values(), default=0)


def lag(query: _Query) -> Lag | None:
    """The lag at the query's last progress; None before the first.

    `query` is a `StreamingQuery`; sources of other kinds are ignored.
    """
    progress = query.lastProgress
    if progress is None:
        return None
    behind: dict[TopicPartition, int] = {}
    for source in progress.sources:
        ends, latest = _offsets(source.endOffset), _offsets(source.latestOffset)
        for partition, offset in latest.items():
            if partition in ends:
                behind[partition] = max(0, offset - ends[partition])
    return Lag(behind)


def _offsets(text: str | None) -> dict[TopicPartition, int]:
    try:
        value = json.loads(text or "null")
    except ValueError:
        return {}
    if not isinstance(value, dict):
        return {}
    return {
        TopicPartition(topic, int(index)): offset
        for topic, rows in value.items()
        if not topic.startswith("@") and isinstance(rows, dict)
        for index, offset in rows.items()
        if str(index).isdigit() and isinstance(offset, int)
    }
