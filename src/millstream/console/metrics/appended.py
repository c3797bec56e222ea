"""Bytes written to each topic since the console started, from the sizes of its log files.

Counted when somebody asks, so a produce pays nothing. Segments that appear and go between two
looks are missed; they would have to live less than five seconds.
"""

from collections.abc import Iterable

from millstream.replication.partition import Partition


class AppendedBytes:
    def __init__(self) -> None:
        self.by_topic: dict[str, int] = {}
        self._has_looked = False
        # Base offset and size of the active segment of each log at the last look.
        self._seen: dict[Partition, tuple[int, int]] = {}

    def look(self, partitions: Iterable[Partition]) -> None:
        seen: dict[Partition, tuple[int, int]] = {}
        for partition in partitions:
            segments = partition.log.segments
            active = segments.active
            now = (active.base_offset, active.size_bytes)
            before = seen[partition] = self._seen.get(partition) or self._beginning(partition)
            if before != now:
                topic = partition.topic_partition.topic
                grown = _grown(partition, before)
                self.by_topic[topic] = self.by_topic.get(topic, 0) + grown
                seen[partition] = now
        self._seen = seen
        self._has_looked = True

    def _beginning(self, partition: Partition) -> tuple[int, int]:
        """A log that appears later was empty; the first look only learns what is there."""
        segments = partition.log.segments
        if self._has_looked:
            return segments.all[0].base_offset, 0
        return segments.active.base_offset, segments.active.size_bytes


def _grown(partition: Partition, before: tuple[int, int]) -> int:
    base_offset, size_bytes = before
    grown = 0
    for segment in reversed(partition.log.segments.all):
        if segment.base_offset < base_offset:
            break
        grown += segment.size_bytes
        if segment.base_offset == base_offset:
            grown -= size_bytes
    # A log that was cut is shorter.
    return max(grown, 0)
