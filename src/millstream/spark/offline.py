"""Planning a read of a data directory without any broker: what is there, and up to where.

The high watermark that the node wrote down last is the end: what lies behind it may have
been acknowledged, but nothing here can tell.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from millstream.model import NO_TOPIC_ID, TopicPartition
from millstream.spark.cluster import EARLIEST, LATEST, TopicInfo
from millstream.spark.failure import SourceError, option_error
from millstream.spark.options import ReadOptions
from millstream.spark.planning import Planner
from millstream.spark.ranges import Offsets
from millstream.spark.scanning import list_segments
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
        if any(what not in (EARLIEST, LATEST) for what in wanted.values()):
            raise option_error("offline", "offsets by time need a broker")
        watermarks = self._checkpoint(HIGH_WATERMARKS_FILE)
        starts = self._checkpoint(LOG_STARTS_FILE)
        found = {}
        for partition, what in wanted.items():
            segments = list_segments(self._data_dir / directory_name(partition))
            start = max(starts.get(partition, 0), min(segments, default=0))
            found[partition] = (
                start if what == EARLIEST else max(start, watermarks.get(partition, 0))
            )
        return found

    def _checkpoint(self, name: str) -> dict[TopicPartition, int]:
        try:
            return parse_offsets((self._data_dir / name).read_bytes())
        except FileNotFoundError:
            return {}
        except ValueError as damaged:
            raise SourceError("DAMAGED_CHECKPOINT", f"{name}: {damaged}") from damaged
