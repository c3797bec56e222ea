"""From options to offsets: the partitions, and where a read begins and ends."""

import re
import time
import uuid
from collections.abc import Iterable, Mapping

from millstream.lazy_dataclass import dataclass
from millstream.model import INTERNAL_TOPICS, TopicPartition
from millstream.spark.cluster import EARLIEST, LATEST, Cluster, TopicInfo
from millstream.spark.failure import SourceError, begins_at, lose, option_error
from millstream.spark.options import Place, Position, ReadOptions
from millstream.spark.ranges import OffsetRange, Offsets, split_ranges

PartitionIds = Mapping[TopicPartition, uuid.UUID]


@dataclass(slots=True)
class _Known:
    at: float
    partitions: PartitionIds


class Planner:
    """Requests from the cluster what one read needs."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._known: _Known | None = None
        self.cluster = Cluster(options.client)

    def partitions(self) -> PartitionIds:
        """The partitions that the options select, with the ids of their topics."""
        cache_seconds = self._options.topics_cache_ms / 1000
        now = time.monotonic()
        if self._known is not None and now - self._known.at < cache_seconds:
            return self._known.partitions
        self._known = _Known(now, self._select())
        return self._known.partitions

    def _select(self) -> PartitionIds:
        selection = self._options.selection
        if selection.pattern is not None:
            expression = re.compile(selection.pattern)
            topics = self._describe(None)
            # As Kafka's own consumers do: `.*` does not include internal topics.
            matching = [
                topic
                for topic in topics.values()
                if expression.fullmatch(topic.name) and topic.name not in INTERNAL_TOPICS
            ]
        else:
            names = selection.topics or sorted({p.topic for p in selection.partitions or ()})
            matching = list(self._describe(names).values())
        every = {
            TopicPartition(topic.name, index): topic.topic_id
            for topic in matching
            for index in sorted(topic.leaders)
        }
        if selection.partitions is None:
            return every
        return {p: every[p] for p in selection.partitions if p in every}

    def _describe(self, names: Iterable[str] | None) -> dict[str, TopicInfo]:
        return self.cluster.describe_topics(names)

    def check_existence(self, partitions: PartitionIds) -> None:
        """Refuse a read of something missing; a pattern may match nothing yet."""
        selection = self._options.selection
        topics = {partition.topic for partition in partitions}
        absent = [topic for topic in selection.topics or () if topic not in topics]
        absent += [str(p) for p in selection.partitions or () if p not in partitions]
        if absent:
            option = "assign" if selection.partitions else "subscribe"
            raise SourceError(
                "UNKNOWN_TOPIC",
                f"Option '{option}' names something missing: {', '.join(absent)}. Create "
                "it first (`millstream topic create NAME`)",
            )

    def earliest(self, partitions: PartitionIds) -> Offsets:
        return self._list(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: PartitionIds) -> Offsets:
        """The end for readers of this isolation level."""
        return self._list(dict.fromkeys(partitions, LATEST))

    def resolve_start(self, partitions: PartitionIds) -> Offsets:
        """The start in the options."""
        return self._resolve(self._options.starting, partitions, is_end=False)

    def check_start(self, starts: Offsets, partitions: PartitionIds) -> None:
        """Refuse a stream that begins after the end; for read_committed the end may only seem to
        be earlier."""
        fetch = self._options.fetch
        if fetch.fails_on_data_loss and not fetch.is_committed_only:
            _check_not_behind(self._options.starting, starts, self.latest(partitions), fails=True)

    def resolve_end(self, partitions: PartitionIds) -> Offsets:
        """The end in the options."""
        return self._resolve(self._options.ending, partitions, is_end=True)

    def checked_bounds(
        self, starts: Offsets, ends: Offsets, partitions: PartitionIds
    ) -> tuple[Offsets, Offsets]:
        """Bounds that are in the log, before a task finds out. Those that were not given as
        numbers always are; others fail, or are moved with a warning (`failOnDataLoss`)."""
        given = [self._options.starting, self._options.ending]
        if all(position.place is not Place.OFFSETS for position in given):
            return starts, ends
        earliest, latest = self.earliest(partitions), self.latest(partitions)
        fails = self._options.fetch.fails_on_data_loss
        for position, offsets in zip(given, (starts, ends), strict=True):
            _check_not_behind(position, offsets, latest, fails=fails)
        for partition, start in starts.items():
            if start < earliest[partition]:
                lose(begins_at(partition, earliest[partition], requested=start), fails=fails)
        starts = {p: max(start, earliest[p]) for p, start in starts.items()}
        return starts, {p: min(end, latest[p]) for p, end in ends.items()}

    def split(self, starts: Offsets, ends: Offsets, ids: PartitionIds) -> list[OffsetRange]:
        """The tasks of a read between these offsets."""
        whole = [
            OffsetRange(partition, ids[partition], starts[partition], ends[partition])
            for partition in sorted(ends)
        ]
        return split_ranges(
            whole,
            partitions_min=self._options.partitions_min,
            records_max=self._options.records_per_partition_max,
        )

    def _list(self, wanted: Mapping[TopicPartition, int]) -> Offsets:
        if not wanted:
            return {}
        return self.cluster.list_offsets(
            wanted, is_committed_only=self._options.fetch.is_committed_only
        )

    def _resolve(self, position: Position, partitions: PartitionIds, *, is_end: bool) -> Offsets:
        match position.place:
            case Place.EARLIEST:
                return self.earliest(partitions)
            case Place.LATEST:
                return self.latest(partitions)
            case Place.OFFSETS:
                return self._resolve_offsets(position, partitions)
            case Place.TIMESTAMP:
                wanted = dict.fromkeys(partitions, position.timestamp_ms)
            case Place.TIMESTAMPS:
                wanted = dict(_all_named(position, partitions))
        found = dict(self._list(wanted))
        unmatched = [partition for partition, offset in found.items() if offset < 0]
        if unmatched and not is_end and not self._options.takes_latest_without_match:
            raise option_error(
                position.option,
                f"{unmatched[0]} has no record as new as {wanted[unmatched[0]]}. Choose an "
                "earlier time, or set 'startingOffsetsByTimestampStrategy' to 'latest'",
            )
        found.update(self._list(dict.fromkeys(unmatched, LATEST)))
        return found

    def _resolve_offsets(self, position: Position, partitions: PartitionIds) -> Offsets:
        named = _all_named(position, partitions)
        relative = {p: offset for p, offset in named.items() if offset in (EARLIEST, LATEST)}
        return {**named, **self._list(relative)}


def _check_not_behind(
    position: Position, offsets: Offsets, latest: Offsets, *, fails: bool
) -> None:
    for partition, offset in offsets.items():
        if position.place is not Place.OFFSETS or offset <= latest[partition]:
            continue
        text = f"{partition} ends at offset {latest[partition]}, before {offset}"
        if fails:
            remedy = "To read the rest, set 'failOnDataLoss' to 'false'"
            raise option_error(position.option, f"{text}. {remedy}")
        lose(text, fails=False)


def _all_named(position: Position, partitions: PartitionIds) -> Mapping[TopicPartition, int]:
    named = position.by_partition
    assert named is not None
    if set(named) != set(partitions):
        missing = ", ".join(map(str, sorted(set(partitions) - set(named))))
        foreign = ", ".join(map(str, sorted(set(named) - set(partitions))))
        what = f"leaves out {missing}" if missing else f"names {foreign}, which is not read"
        raise option_error(
            position.option, f"must name exactly the partitions that are read; it {what}"
        )
    return named
