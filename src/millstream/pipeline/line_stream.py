"""A stream of records whose tasks run the one pass over them, in batches that have a clock.

Hosts fall silent and visits end by the clock, also when no line arrives. So every trigger starts a
batch, if need be an empty one, and the time at which it was planned is a part of its offset: Spark
stores that, and a batch that is repeated has the clock that it had the first time.
"""

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from millstream.spark.options import ReadOptions
from millstream.spark.ranges import StreamOffset, from_json, to_json
from millstream.spark.stream import StreamReader

if TYPE_CHECKING:
    import pyarrow as pa

# Beside the offsets of topics; no topic has such a name.
_CLOCK: Final = "@clock"


class LinePartition(InputPartition):
    """The work of one task: a range of offsets, or nothing but the clock."""

    def __init__(self, records: InputPartition, now_ms: int | None) -> None:
        super().__init__(records)
        self.now_ms = now_ms


class LineStream(StreamReader):
    def __init__(self, options: ReadOptions, rules: str) -> None:
        """`rules`: `PassRules` as JSON."""
        super().__init__(options)
        self._rules = rules

    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> dict[str, object]:
        latest = super().latestOffset(start, limit)
        if self._targets is not None:
            # It ends when nothing is new: the clock would never let it.
            return latest
        if latest == start:
            # Nothing is new. `start` also says where its own batch began.
            last = from_json(start)
            latest = to_json(StreamOffset(last.ends, last.ends, last.ids))
        return {**latest, _CLOCK: time.time_ns() // 1_000_000}

    def partitions(
        self, start: dict[str, object], end: dict[str, object]
    ) -> Sequence[InputPartition]:
        clock = end.get(_CLOCK)
        now_ms = None if clock is None else int(str(clock))
        ranges = super().partitions(start, end) or [InputPartition(None)]
        return [LinePartition(each, now_ms) for each in ranges]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        from millstream.pipeline.line_pass import LinePass, PassRules, sink_options
        from millstream.spark.tasks import read_partition

        assert isinstance(partition, LinePartition)
        rules = PassRules.from_json(self._rules)
        records = read_partition(self._options, partition.value)
        yield from LinePass(rules, sink_options(rules.bootstrap)).run(records, partition.now_ms)
