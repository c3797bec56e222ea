"""Reads a topic as a stream: the driver's side of every micro-batch.

Spark calls, in one long-lived process per query: `initialOffset` (more than once, and
again after a crash in the first batch), `latestOffset` with the end of the last batch,
`partitions` for the batch in between. `partitions` takes the start of a batch from its
end offset and never trusts `start`, see `ranges`.

A partition that is new since the last batch is read from its beginning. A topic that was deleted
and created again is a loss of data, and is then read from its beginning too.
"""

import logging
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from millstream.model import NO_TOPIC_ID, TopicPartition
from millstream.spark.failure import SourceError, begins_at, lose
from millstream.spark.options import ReadOptions
from millstream.spark.planning import PartitionIds, Planner
from millstream.spark.ranges import (
    Offsets,
    StreamOffset,
    ends_to_json,
    from_json,
    limit_bytes,
    limit_offsets,
    to_json,
)
from millstream.spark.reader import RangePartition

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._planner = Planner(options)
        self._initial: dict[str, object] | None = None
        # With AvailableNow: where this run ends.
        self._targets: Offsets | None = None
        self._latest: Offsets = {}
        self._triggered_at: float | None = None
        self._committed: Offsets = {}

    def initialOffset(self) -> dict[str, object]:
        if self._initial is None:
            partitions = self._planner.partitions()
            self._planner.check_existence(partitions)
            starts = self._planner.resolve_start(partitions)
            self._planner.check_start(starts, partitions)
            # Its own start: Spark passes it as the end of an empty first batch too.
            self._initial = to_json(StreamOffset(starts, starts, _ids(partitions)))
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._options
        # Spark cannot express two limits; the second is applied here.
        if options.offsets_per_trigger_max is not None:
            return ReadMaxRows(options.offsets_per_trigger_max)
        if options.bytes_per_trigger_max is not None:
            return ReadMaxBytes(options.bytes_per_trigger_max)
        if options.offsets_per_trigger_min is not None:
            return ReadMinRows(options.offsets_per_trigger_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._targets = self._planner.latest(self._planner.partitions())

    def reportLatestOffset(self) -> dict[str, object] | None:
        return dict(ends_to_json(self._latest)) if self._latest else None

    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> dict[str, object]:
        previous = from_json(start)
        # The end of the last finished batch: the only report of it while idle.
        self._commit_group(previous.ends)
        partitions = self._planner.partitions()
        starts, partitions = self._starts(previous, partitions)
        latest = dict(self._planner.latest(partitions))
        self._latest = latest
        starts = self._checked_starts(starts, latest, partitions)
        ends: Offsets = {p: max(latest[p], starts[p]) for p in starts}
        if self._targets is not None:
            ends = _within_targets(starts, ends, self._targets)
            starts = {partition: starts[partition] for partition in ends}
        ends = self._limited(starts, ends, limit)
        if all(ends[p] == starts[p] == previous.ends.get(p) for p in ends) and set(ends) == set(
            previous.ends
        ):
            return start
        self._triggered_at = time.monotonic()
        ids = {p.topic: partitions[p] for p in ends if partitions[p] != NO_TOPIC_ID}
        return to_json(StreamOffset(ends, starts, ids))

    def partitions(
        self, start: dict[str, object], end: dict[str, object]
    ) -> Sequence[InputPartition]:
        batch = from_json(end)
        ids = {p: batch.ids.get(p.topic, NO_TOPIC_ID) for p in batch.ends}
        starts = batch.starts
        if starts is None:
            starts = self._starts_of_sparks_own(from_json(start), batch.ends)
        starts = {p: starts.get(p, batch.ends[p]) for p in batch.ends}
        return [RangePartition(each) for each in self._planner.split(starts, batch.ends, ids)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        from millstream.spark.tasks import read_partition

        return read_partition(self._options, partition)

    def commit(self, end: dict[str, object]) -> None:
        """Does nothing: it is not called for the last batch. `latestOffset` commits instead."""

    # -- where a batch starts ---------------------------------------------------------------

    def _starts_of_sparks_own(self, previous: StreamOffset, ends: Offsets) -> Offsets:
        """Of a batch that Spark's own source planned and did not finish."""
        if previous.starts is not None:
            # Our own answer to `initialOffset`: the batch was the first. Its start is in a file of
            # the checkpoint that Spark does not pass to us, and may differ from ours.
            raise SourceError(
                "INVALID_CHECKPOINT",
                "The first batch of the checkpoint was started by Spark's own source and not "
                "finished. Let that source finish it, then continue with this one, or start the "
                "query with another checkpoint location",
            )
        new = {partition: NO_TOPIC_ID for partition in ends if partition not in previous.ends}
        return {**previous.ends, **self._planner.earliest(new)}

    def _starts(
        self, previous: StreamOffset, partitions: PartitionIds
    ) -> tuple[dict[TopicPartition, int], PartitionIds]:
        """Where the next batch begins in each partition that still exists or is new."""
        self._check_removed(previous, partitions)
        recreated = {
            partition.topic
            for partition in partitions
            if NO_TOPIC_ID
            not in (partitions[partition], previous.ids.get(partition.topic, NO_TOPIC_ID))
            and previous.ids[partition.topic] != partitions[partition]
        }
        for topic in sorted(recreated):
            self._lose(f"Topic {topic} was deleted and created again since the last batch")
        starts = {
            partition: previous.ends[partition]
            for partition in partitions
            if partition in previous.ends and partition.topic not in recreated
        }
        new = {p: partitions[p] for p in partitions if p not in starts}
        if self._targets is not None:
            new = {p: topic_id for p, topic_id in new.items() if p in self._targets}
        for partition, offset in self._planner.earliest(new).items():
            if offset > 0 and partition.topic not in recreated:
                self._lose(f"New partition {partition} begins at offset {offset}, not at 0")
            starts[partition] = offset
        return starts, {p: partitions[p] for p in starts}

    def _check_removed(self, previous: StreamOffset, partitions: PartitionIds) -> None:
        removed = sorted(set(previous.ends) - set(partitions))
        if not removed:
            return
        read = {partition.topic for partition in partitions}
        known = {partition.topic for partition in previous.ends}
        if read and not read & known:
            raise SourceError(
                "CHECKPOINT_OF_ANOTHER_TOPIC",
                f"The checkpoint is of {', '.join(sorted(known))}, but the query reads "
                f"{', '.join(sorted(read))}. Start it with a separate checkpoint location",
            )
        verb = "is" if len(removed) == 1 else "are"
        self._lose(f"{', '.join(map(str, removed))} {verb} gone")

    def _checked_starts(
        self, starts: Offsets, latest: Offsets, partitions: PartitionIds
    ) -> dict[TopicPartition, int]:
        """Starts that are in the log; what is no longer there is lost data."""
        checked = dict(starts)
        earliest = self._planner.earliest(partitions)
        for partition, start in starts.items():
            if start < earliest[partition]:
                self._lose(begins_at(partition, earliest[partition], requested=start))
                checked[partition] = earliest[partition]
            elif start > latest[partition] and not self._options.fetch.is_committed_only:
                self._lose(
                    f"{partition} ends at offset {latest[partition]}, was read up to {start}"
                )
                checked[partition] = latest[partition]
        return checked

    def _lose(self, text: str) -> None:
        lose(text, fails=self._options.fetch.fails_on_data_loss)

    # -- where it ends ----------------------------------------------------------------------

    def _limited(self, starts: Offsets, ends: Offsets, limit: ReadLimit) -> Offsets:
        if isinstance(limit, ReadAllAvailable):
            return ends
        options = self._options
        if options.offsets_per_trigger_min is not None and self._targets is None:
            new = sum(ends[partition] - starts[partition] for partition in ends)
            if new < options.offsets_per_trigger_min and not self._is_delay_over():
                return starts
        if options.offsets_per_trigger_max is not None:
            ends = limit_offsets(starts, ends, options.offsets_per_trigger_max)
        if options.bytes_per_trigger_max is not None:
            sizes = self._bytes_per_offset(ends)
            ends = limit_bytes(starts, ends, options.bytes_per_trigger_max, sizes)
        return ends

    def _is_delay_over(self) -> bool:
        if self._triggered_at is None:
            return True
        waited_ms = (time.monotonic() - self._triggered_at) * 1000
        return waited_ms >= self._options.trigger_delay_ms_max

    def _bytes_per_offset(self, ends: Offsets) -> dict[TopicPartition, float]:
        sizes = self._planner.cluster.partition_sizes(ends)
        earliest = self._planner.earliest(dict.fromkeys(ends, NO_TOPIC_ID))
        return {
            p: sizes.get(p, 0) / max(1, self._latest.get(p, ends[p]) - earliest[p]) for p in ends
        }

    # -- progress for others ----------------------------------------------------------------

    def _commit_group(self, ends: Offsets) -> None:
        group = self._options.commit_group
        if group is None or ends == self._committed:
            return
        try:
            self._planner.cluster.commit_offsets(group, ends)
        except SourceError as failed:
            # Lag tools see the progress late; the query itself does not need it.
            log.warning("progress was not committed: %s", failed)
            return
        self._committed = dict(ends)


def _ids(partitions: PartitionIds) -> dict[str, uuid.UUID]:
    return {p.topic: topic_id for p, topic_id in partitions.items() if topic_id != NO_TOPIC_ID}


def _within_targets(starts: Offsets, ends: Offsets, targets: Offsets) -> Offsets:
    """No further than the run's targets, but never back: a batch that is repeated after a
    restart may end after targets that were set earlier in another place."""
    return {p: max(starts[p], min(end, targets.get(p, starts[p]))) for p, end in ends.items()}
