"""The records of a share partition that are in flight: fetched, and not all of them finished.

They are kept in batches, as they were first acquired. While all records of a batch share one
fate, the batch has one `Delivery`; once they differ, each has its own.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from millstream.coordinators.share.state_batches import (
    ACQUIRED,
    AVAILABLE,
    DELAYED,
    FINISHED,
)


class Delivery:
    """What is known of a record, or of all records of a batch.

    `member_id` is set exactly while it is acquired. While a change is being stored, `before`
    holds the state and the member that it had, and nobody may acquire or acknowledge it; until
    then `lock_until_ms` stays, because the lock counts again if the change cannot be stored.
    While it is delayed, `lock_until_ms` is when it becomes available.
    """

    __slots__ = ("before", "count", "lock_until_ms", "member_id", "state")

    def __init__(self, state: int, count: int, member_id: str = "", lock_until_ms: int = 0) -> None:
        self.state = state
        # How often it was delivered, this time included.
        self.count = count
        self.member_id = member_id
        self.lock_until_ms = lock_until_ms
        self.before: tuple[int, str] | None = None

    def copy(self) -> "Delivery":
        return Delivery(self.state, self.count, self.member_id, self.lock_until_ms)

    @property
    def is_available(self) -> bool:
        return self.state == AVAILABLE and self.before is None

    @property
    def is_locked(self) -> bool:
        return self.state == ACQUIRED and self.before is None

    @property
    def is_delayed(self) -> bool:
        return self.state == DELAYED

    @property
    def is_finished(self) -> bool:
        return self.state in FINISHED and self.before is None

    def acquire(self, member_id: str, lock_until_ms: int) -> None:
        assert self.is_available
        self.state = ACQUIRED
        self.count += 1
        self.member_id = member_id
        self.lock_until_ms = lock_until_ms

    def postpone(self, until_ms: int) -> None:
        assert self.is_available
        self.state = DELAYED
        self.lock_until_ms = until_ms

    def settle(self, state: int) -> None:
        """Final until it is acquired again: no lock, no member, nothing to go back to."""
        self.state = state
        self.member_id = ""
        self.lock_until_ms = 0
        self.before = None


class InFlightBatch:
    """Offsets from `first` to `last`, both included. Exactly one of `whole` and `each` is set;
    `each` has a delivery per offset."""

    __slots__ = ("each", "first", "last", "whole")

    def __init__(self, first: int, last: int, whole: Delivery) -> None:
        assert first <= last
        self.first = first
        self.last = last
        self.whole: Delivery | None = whole
        self.each: list[Delivery] | None = None

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    @property
    def is_undelivered(self) -> bool:
        """A gap between stored ranges: nothing is known of a delivery."""
        whole = self.whole
        return whole is not None and whole.state == AVAILABLE and whole.count == 0

    def split(self) -> list[Delivery]:
        """From now on each record has its own delivery."""
        if self.each is None:
            whole = self.whole
            assert whole is not None
            assert whole.before is None, "a change of the batch is being stored"
            self.each = [whole.copy() for _ in range(self.size)]
            self.whole = None
        return self.each

    def deliveries(self, first: int, last: int) -> Iterator[tuple[int, Delivery]]:
        """Single offsets in a range, with their deliveries. Only for a batch that is split."""
        assert self.each is not None
        begin = max(first, self.first)
        end = min(last, self.last) + 1
        return zip(range(begin, end), self.each[begin - self.first : end - self.first], strict=True)

    def available_count(self, from_offset: int) -> int:
        if self.whole is not None:
            return self.size if self.whole.is_available else 0
        return sum(one.is_available for _, one in self.deliveries(from_offset, self.last))


class InFlight:
    """Batches in the order of their offsets, without overlap. Offsets between two batches do not
    exist in the log."""

    __slots__ = ("batches",)

    def __init__(self) -> None:
        self.batches: list[InFlightBatch] = []

    def overlapping(self, first: int, last: int) -> list[InFlightBatch]:
        """Batches with an offset in a range, both ends included."""
        begin = bisect_left(self.batches, first, key=_last)
        end = bisect_right(self.batches, last, lo=begin, key=_first)
        return self.batches[begin:end]

    def add(self, batch: InFlightBatch) -> None:
        batches = self.batches
        if not batches or batches[-1].last < batch.first:
            batches.append(batch)
            return
        index = bisect_right(batches, batch.first, key=_first)
        assert batches[index].first > batch.last
        assert index == 0 or batches[index - 1].last < batch.first
        batches.insert(index, batch)

    def cut(self, batch: InFlightBatch, at: int) -> InFlightBatch:
        """Divide a batch that is not split; the second part, from offset `at` on, is returned."""
        assert batch.whole is not None
        assert batch.first < at <= batch.last
        rest = InFlightBatch(at, batch.last, batch.whole.copy())
        batch.last = at - 1
        self.batches.insert(bisect_right(self.batches, batch.first, key=_first), rest)
        return rest

    def cut_out(self, batch: InFlightBatch, first: int, last: int) -> InFlightBatch:
        """The part of a batch that is in the range, as a batch."""
        if batch.first < first:
            batch = self.cut(batch, first)
        if last < batch.last:
            self.cut(batch, last + 1)
        return batch

    def join_finished(self) -> None:
        """Have one batch where all records of neighbours are finished."""
        result: list[InFlightBatch] = []
        for batch in self.batches:
            if batch.each is not None and all(one.is_finished for one in batch.each):
                batch = InFlightBatch(batch.first, batch.last, batch.each[0])
            before = result[-1] if result else None
            if (
                before is not None
                and before.last + 1 == batch.first
                and before.whole is not None
                and before.whole.is_finished
                and batch.whole is not None
                and batch.whole.is_finished
            ):
                before.last = batch.last
            else:
                result.append(batch)
        self.batches[:] = result

    def drop_before(self, offset: int) -> None:
        """Forget the batches that are entirely below an offset."""
        del self.batches[: bisect_left(self.batches, offset, key=_last)]


def counted(first: int, last: int, start: int) -> int:
    """How many offsets of a range are not before the start."""
    return max(0, last - max(first, start) + 1)


def _first(batch: InFlightBatch) -> int:
    return batch.first


def _last(batch: InFlightBatch) -> int:
    return batch.last
