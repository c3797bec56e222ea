"""Reading records for a share group: as many batches as it may acquire from, and no more."""

from dataclasses import dataclass
from typing import Final

from millstream.coordinators.share.acquiring import LogBatch
from millstream.records.batch import HEADER_BYTES, BatchView
from millstream.records.control import ControlType, read_end_marker
from millstream.records.delivery_times import RecordTimes, times_of_records
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
    # Of records that may not be delivered at any time.
    times: list[RecordTimes]

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


def read(found: Found, *, last_offset: int) -> FetchedBatches:
    """Whole batches, up to the one that reaches `last_offset`."""
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
    batches = [LogBatch(view.base_offset, view.last_offset) for view in views]
    times = times_of_records(views, data)
    return FetchedBatches(data, batches, positions, _aborted(views, found.aborted), times)


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
