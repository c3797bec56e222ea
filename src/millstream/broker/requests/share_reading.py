"""Reading records for a share group: as many batches as it may acquire from, and no more."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from millstream.broker.requests.known_times import KnownTimes, QuickSearch
from millstream.coordinators.share.acquiring import LogBatch
from millstream.records.batch import HEADER_BYTES, BatchView
from millstream.records.control import ControlType, read_end_marker
from millstream.records.delivery_times import NO_TIMES, BatchTimes, RecordTimes, may_have_times
from millstream.replication.partition import Partition
from millstream.storage.aborted_index import AbortedTransaction
from millstream.storage.log import FileRange

# Read at a time: a share fetch asks for megabytes, and mostly takes some hundred records.
_READ_BYTES: Final = 1 << 17


@dataclass(slots=True)
class Found:
    """Where a fetch may read: `length` bytes are there."""

    partition: Partition
    offset: int
    file_range: FileRange
    aborted: list[AbortedTransaction]


@dataclass(slots=True)
class FetchedBatches:
    data: bytes
    batches: list[LogBatch]
    # The position of each batch in `data`, and the end of the last.
    positions: list[int]
    # Batches of transactions that were aborted.
    aborted: list[LogBatch]
    # Of batches with records that may not be delivered at any time.
    times: list[BatchTimes]
    # The next batch, if it is not known whether it has such records.
    unsearched_offset: int | None

    def times_since(self, offset: int) -> Iterator[RecordTimes]:
        return (one for batch in self.times for one in batch.since(offset))

    def records(self, first: int, last: int) -> bytes:
        """The batches that hold the offsets from `first` to `last`."""
        numbers = [
            number
            for number, batch in enumerate(self.batches)
            if batch.last >= first and batch.first <= last
        ]
        if not numbers:
            return b""
        return self.data[self.positions[numbers[0]] : self.positions[numbers[-1] + 1]]


def find(
    partition: Partition, offset: int, *, max_bytes: int, at_least_one: bool, is_committed: bool
) -> Found | None:
    """None if there is nothing to read yet. Raises KafkaError."""
    if offset > partition.log.next_offset:
        # An administrator has set a start that the log has not reached.
        return None
    aborted: list[AbortedTransaction] = []
    if is_committed:
        found, aborted = partition.read_committed(
            offset, max_bytes=max_bytes, at_least_one=at_least_one
        )
    else:
        found = partition.read(offset, max_bytes=max_bytes, at_least_one=at_least_one)
    return None if found is None else Found(partition, offset, found, aborted)


def read(found: Found, *, last_offset: int, known_times: KnownTimes) -> FetchedBatches:
    """Whole batches, up to the one that reaches `last_offset`, or before one whose times are not
    known."""
    data, views, positions = _read(found, last_offset)
    times: list[BatchTimes] = []
    unsearched_offset = None
    if may_have_times(views, data):
        times = _known(found.partition, views, known_times)
        if len(times) < len(views):
            unsearched_offset = views[len(times)].base_offset
            views = views[: len(times)]
    return FetchedBatches(
        data,
        [LogBatch(view.base_offset, view.last_offset) for view in views],
        positions[: len(views) + 1],
        _aborted(views, found.aborted),
        [one for one in times if one is not NO_TIMES],
        unsearched_offset,
    )


def _known(
    partition: Partition, views: list[BatchView], known_times: KnownTimes
) -> list[BatchTimes]:
    """The times of the first batches, up to one that would take long to search."""
    result: list[BatchTimes] = []
    quick_search = QuickSearch()
    for view in views:
        times = known_times.find(partition, view, quick_search)
        if times is None:
            break
        result.append(times)
    return result


def _read(found: Found, last_offset: int) -> tuple[bytes, list[BatchView], list[int]]:
    """The batches, and their positions in the data, with the end of the last."""
    file, begin, length = found.file_range.file, found.file_range.position, found.file_range.length
    data = file.read_at(begin, min(length, _READ_BYTES))
    views: list[BatchView] = []
    positions = [0]
    while not views or views[-1].last_offset < last_offset:
        position = positions[-1]
        missing = HEADER_BYTES - (len(data) - position)
        if missing <= 0:
            view = BatchView(memoryview(data)[position:])
            missing = view.size_bytes - (len(data) - position)
            if missing <= 0:
                views.append(view)
                positions.append(position + view.size_bytes)
                continue
        left = length - len(data)
        if missing > left:
            # The range ends inside a batch.
            break
        # Twice as much each time: the views keep what they were made of.
        data += file.read_at(begin + len(data), min(left, max(missing, len(data))))
    return data[: positions[-1]], views, positions


def _aborted(views: list[BatchView], transactions: list[AbortedTransaction]) -> list[LogBatch]:
    """The batches of aborted transactions among those read."""
    result: list[LogBatch] = []
    waiting = sorted(transactions, key=lambda one: one.first_offset, reverse=True)
    producers: set[int] = set()
    for view in views if transactions else ():
        while waiting and waiting[-1].first_offset <= view.last_offset:
            producers.add(waiting.pop().producer_id)
        if view.is_control:
            marker = read_end_marker(view)
            if marker is not None and marker.type is ControlType.ABORT:
                producers.discard(view.producer_id)
        elif view.is_transactional and view.producer_id in producers:
            result.append(LogBatch(view.base_offset, view.last_offset))
    return result
