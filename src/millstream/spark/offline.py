"""Plans a read of a data directory without any broker: what is there, and up to where.

The read ends at the high watermark that the node last wrote: later records may have been
acknowledged, but the files cannot show that.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from millstream.model import NO_TOPIC_ID, TopicPartition
from millstream.spark.cluster import EARLIEST, LATEST, TopicInfo
from millstream.spark.failure import SourceError, option_error
from millstream.spark.options import ReadOptions
from millstream.spark.partition_files import PartitionFiles
from millstream.spark.planning import Planner
from millstream.spark.ranges import Offsets
from millstream.storage.checkpoints import parse_offsets
from millstream.storage.layout import (
    HIGH_WATERMARKS_FILE,
    LOG_STARTS_FILE,
    directory_name,
    parse_directory,
)


class OfflinePlanner(Planner):
    def __init__(self, options: ReadOptions) -> None:
        super().__init__(options)
        assert options.path is not None
        self._data_dir = Path(options.path)

    def _describe(self, names: Iterable[str] | None) -> dict[str, TopicInfo]:
        try:
            entries = os.listdir(self._data_dir)
        except OSError as failed:
            raise option_error("path", f"{self._data_dir}: {failed.strerror}") from failed
        wanted = None if names is None else set(names)
        partitions: dict[str, dict[int, int]] = {}
        for name in entries:
            found = parse_directory(name)
            if found is not None and (wanted is None or found.topic in wanted):
                partitions.setdefault(found.topic, {})[found.partition] = 0
        return {
            topic: TopicInfo(topic, NO_TOPIC_ID, leaders) for topic, leaders in partitions.items()
        }

    def _list(self, wanted: Mapping[TopicPartition, int]) -> Offsets:
        watermarks = self._checkpoint(HIGH_WATERMARKS_FILE)
        starts = self._checkpoint(LOG_STARTS_FILE)
        found = {}
        for partition, what in wanted.items():
            files = PartitionFiles(self._data_dir / directory_name(partition))
            start = max(starts.get(partition, 0), min(files.segments(), default=0))
            if what == EARLIEST:
                found[partition] = start
                continue
            end = max(start, self._end(files, partition, watermarks.get(partition, 0)))
            found[partition] = end if what == LATEST else files.offset_at(what, start, end)
        return found

    def _end(self, files: PartitionFiles, partition: TopicPartition, watermark: int) -> int:
        """The end for readers of this isolation level."""
        if not self._options.fetch.is_committed_only:
            return watermark
        stable = files.last_stable_offset(watermark)
        if stable is None:
            raise SourceError(
                "NEEDS_BROKER",
                f"The files of {partition} do not show which transactions were open. Read it "
                "through a broker, without 'offline', or without 'kafka.isolation.level'="
                "'read_committed'",
            )
        return stable

    def _checkpoint(self, name: str) -> dict[TopicPartition, int]:
        try:
            return parse_offsets((self._data_dir / name).read_bytes())
        except FileNotFoundError:
            return {}
        except ValueError as damaged:
            raise SourceError("DAMAGED_CHECKPOINT", f"{name}: {damaged}") from damaged
