"""Records of a share partition that are in flight, but not due yet.

They hold no place among the records in flight: others pass them, and new records are fetched as
if they were not there, until there are too many of them.
"""

from typing import Final

from millstream.coordinators.share.in_flight import InFlight, InFlightBatch, counted
from millstream.coordinators.share.state_batches import AVAILABLE, DELAYED

# Of a share partition. With more, nothing new is fetched until some are due: each may take some
# hundred bytes here and in the stored state.
DELAYED_MAX: Final = 10_000
# Behind a delayed record, batches that are finished stay until it is due.
_JOIN_AT_LEAST: Final = 200


class Delays:
    """`start` is always the offset before which records are finished, and do not count."""

    __slots__ = ("_in_flight", "_join_at", "count")

    def __init__(self, in_flight: InFlight) -> None:
        self._in_flight = in_flight
        self.count = 0
        # With so many batches, finished neighbours are joined.
        self._join_at = _JOIN_AT_LEAST

    @property
    def has_room(self) -> bool:
        return self.count < DELAYED_MAX

    def postpone(self, first: int, last: int, *, start: int, until_ms: int) -> None:
        """What was delivered once has been due before."""
        for batch in self._in_flight.overlapping(first, last):
            if batch.is_undelivered:
                part = self._in_flight.cut_out(batch, first, last)
                assert part.whole is not None
                part.whole.postpone(until_ms)
                self.count += counted(part.first, part.last, start)
            elif batch.each is not None:
                for _, one in batch.deliveries(max(first, start), last):
                    if one.is_available and not one.count:
                        one.postpone(until_ms)
                        self.count += 1

    def end(self, now_ms: int, *, start: int) -> bool:
        """Make records available that are due; is there any?"""
        before = self.count
        for batch in self._in_flight.batches if before else ():
            whole = batch.whole
            if whole is not None:
                if whole.is_delayed and whole.lock_until_ms <= now_ms:
                    whole.settle(AVAILABLE)
                    self.count -= counted(batch.first, batch.last, start)
                continue
            for _, one in batch.deliveries(start, batch.last):
                if one.is_delayed and one.lock_until_ms <= now_ms:
                    one.settle(AVAILABLE)
                    self.count -= 1
        return self.count < before

    def forget(self, batch: InFlightBatch, last: int, *, start: int) -> None:
        """The log has deleted the records of the batch up to `last`."""
        if batch.whole is not None:
            self.count -= counted(batch.first, last, start) if batch.whole.is_delayed else 0
            return
        self.count -= sum(one.is_delayed for _, one in batch.deliveries(start, last))

    def others_before(self, end: int, *, start: int) -> int:
        """How many records before `end` count as in flight: from the first that is neither
        delayed nor finished on, without those that are delayed."""
        if not self.count:
            return end - start
        passed = 0
        for batch in self._in_flight.batches:
            if batch.whole is not None:
                if batch.whole.state == DELAYED:
                    # As `counted`; written out, because there may be ten thousand.
                    first = batch.first
                    passed += batch.last + 1 - (first if first > start else start)
                elif not batch.whole.is_finished:
                    return end - batch.first - (self.count - passed)
                continue
            for offset, one in batch.deliveries(start, batch.last):
                if not (one.is_delayed or one.is_finished):
                    return end - offset - (self.count - passed)
                passed += one.is_delayed
        return 0

    def join_finished(self) -> None:
        """What is finished behind a delayed record cannot be forgotten, but need not be long."""
        if self.count and len(self._in_flight.batches) > self._join_at:
            self._in_flight.join_finished()
            self._join_at = 2 * len(self._in_flight.batches) + _JOIN_AT_LEAST
