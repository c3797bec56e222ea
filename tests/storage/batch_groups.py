"""Several batches for one write, for tests."""

from millstream.records.batch import BatchView


class GroupOf:
    """A group in Python; the one that is used is compiled."""

    def __init__(self, *batches: bytearray) -> None:
        self._batches = [bytearray(one) for one in batches]
        self._views = [BatchView(memoryview(one)) for one in self._batches]
        self.size_bytes = sum(len(one) for one in batches)
        self.last_offset_delta = sum(view.record_count for view in self._views) - 1
        self.attributes = max(view.attributes for view in self._views)
        self.producer_id = -1
        self.largest_bytes = max(len(one) for one in batches)
        self.max_timestamp_ms = max(view.max_timestamp_ms for view in self._views)
        newest = [view.max_timestamp_ms for view in self._views].index(self.max_timestamp_ms)
        self.max_timestamp_delta = sum(view.record_count for view in self._views[: newest + 1]) - 1

    def __len__(self) -> int:
        return len(self._batches)

    def stamped(self, base_offset: int, leader_epoch: int) -> memoryview:
        for view in self._views:
            view.stamped(base_offset, leader_epoch)
            base_offset += view.record_count
        return memoryview(b"".join(self._batches))

    def positions(self, first: int) -> list[int]:
        return [first + sum(map(len, self._batches[:i])) for i in range(len(self))]

    def last_offsets(self, base_offset: int) -> list[int]:
        counts = [view.record_count for view in self._views]
        return [base_offset + sum(counts[: i + 1]) - 1 for i in range(len(self))]
