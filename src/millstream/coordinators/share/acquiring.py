"""Acquiring records: which of the fetched ones a consumer gets, as Kafka chooses them.

Whole batches are preferred, because one state for a batch costs much less than one per
record. So a consumer that asks for few records may get more, up to the end of a batch,
unless it asks for exactly that many at most (`is_limit_exact`).
"""

from collections.abc import Sequence
from dataclasses import field
from typing import NamedTuple

from millstream.coordinators.share.in_flight import Delivery, InFlightBatch
from millstream.coordinators.share.partition import Acquired, SharePartition
from millstream.coordinators.share.state_batches import ACQUIRED, AVAILABLE
from millstream.lazy_dataclass import dataclass


class LogBatch(NamedTuple):
    """A batch of the log that was fetched; both offsets are included."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Wanted:
    max_records: int
    # A range of new records ends with the batch of the log that reaches this size.
    batch_size: int
    is_limit_exact: bool = False


@dataclass(slots=True)
class _Acquisition:
    """One member acquires from one partition. `limit` is how many records it gets at most, but for
    the end of a batch; `count` how many it has."""

    share: SharePartition
    member_id: str
    fetched: Sequence[LogBatch]
    wanted: Wanted
    lock_until_ms: int
    limit: int
    last: int
    count: int = 0
    ranges: list[Acquired] = field(default_factory=list)

    @property
    def first(self) -> int:
        return self.fetched[0].first


def acquire(
    share: SharePartition,
    member_id: str,
    *,
    fetch_offset: int,
    fetched: Sequence[LogBatch],
    wanted: Wanted,
    now_ms: int,
) -> list[Acquired]:
    """Lock records of the fetched batches for a member. `fetch_offset` is where they were sought:
    between it and the first batch the log has nothing."""
    if wanted.max_records <= 0 or not fetched or fetched[-1].last < share.start_offset:
        return []
    last = fetched[-1].last
    limit = min(wanted.max_records, share.limits.in_flight_max - share.in_flight_count)
    if limit <= 0:
        if fetch_offset >= share.next_offset:
            return []
        # There is no room, but records in flight have become available.
        limit = min(wanted.max_records, share.next_offset - fetch_offset)
        last = min(last, share.next_offset - 1)
    if fetch_offset < fetched[0].first:
        share.archive_missing(fetch_offset, fetched[0].first)
    lock_until_ms = now_ms + share.limits.lock_ms
    job = _Acquisition(share, member_id, fetched, wanted, lock_until_ms, limit, last)
    _acquire_in_flight(job)
    _acquire_new(job)
    return job.ranges


def _acquire_in_flight(job: _Acquisition) -> None:
    """Records that were in flight before, and are available again."""
    for batch in job.share.in_flight.overlapping(job.first, job.last):
        if job.count >= job.limit:
            return
        if batch.is_undelivered:
            _acquire_gap(job, batch)
            continue
        is_isolated = _must_be_isolated(job, batch)
        if is_isolated and job.count:
            # It comes alone, with the next fetch.
            job.limit = 0
            return
        is_inside = job.first <= batch.first and batch.last <= job.last
        fits = not job.wanted.is_limit_exact or batch.size <= job.limit - job.count
        if batch.whole is not None:
            if not batch.whole.is_available:
                continue
            is_at_start = batch.first >= job.share.start_offset
            if is_inside and fits and not is_isolated and is_at_start:
                batch.whole.acquire(job.member_id, job.lock_until_ms)
                job.ranges.append(Acquired(batch.first, batch.last, batch.whole.count))
                job.count += batch.size
                continue
        if _acquire_each(job, batch) and is_isolated:
            job.limit = 0
            return


def _must_be_isolated(job: _Acquisition, batch: InFlightBatch) -> bool:
    since = job.share.limits.isolating_from
    if batch.whole is not None:
        return batch.whole.is_available and batch.whole.count >= since
    return any(
        one.is_available and one.count >= since for _, one in batch.deliveries(job.first, job.last)
    )


def _acquire_each(job: _Acquisition, batch: InFlightBatch) -> int:
    """Single records of a batch; how many."""
    share, limits = job.share, job.share.limits
    # With only two deliveries, the second is the last of every record: nothing would be left to
    # deliver together.
    isolates_last = limits.deliveries_max > 2
    size = len(batch.split())
    at_most = job.limit - job.count if job.wanted.is_limit_exact else size
    # As Kafka does: if more were taken before the first record that keeps failing, it counts for
    # nothing.
    isolated_at = 0
    found: list[Acquired] = []
    for offset, one in batch.deliveries(max(job.first, share.start_offset), job.last):
        if not one.is_available:
            continue
        if isolates_last and one.count == limits.deliveries_max - 1 and found:
            break
        if one.count >= limits.isolating_from and not isolated_at:
            isolated_at = max(1, size >> (one.count - limits.isolating_from + 1))
        one.acquire(job.member_id, job.lock_until_ms)
        found.append(Acquired(offset, offset, one.count))
        if isolates_last and one.count == limits.deliveries_max:
            break
        if len(found) == at_most or len(found) == isolated_at:
            break
    job.ranges += _joined(found)
    job.count += len(found)
    return len(found)


def _joined(found: Sequence[Acquired]) -> list[Acquired]:
    result: list[Acquired] = []
    for one in found:
        before = result[-1] if result else None
        is_next = before is not None and before.last + 1 == one.first
        if before is not None and is_next and before.delivery_count == one.delivery_count:
            result[-1] = before._replace(last=one.last)
        else:
            result.append(one)
    return result


def _acquire_gap(job: _Acquisition, batch: InFlightBatch) -> None:
    """As new records, though other records after them are in flight."""
    first = max(batch.first, job.first, job.share.start_offset)
    last = min(batch.last, job.last)
    in_flight = job.share.in_flight
    if batch.first < first:
        batch = in_flight.cut(batch, first)
        in_flight.drop_before(job.share.start_offset)
    last = _last_to_take(job, first, last)
    if last < batch.last:
        in_flight.cut(batch, last + 1)
    in_flight.batches.remove(batch)
    _take(job, first, last)


def _acquire_new(job: _Acquisition) -> None:
    """Records that were never delivered."""
    first = max(job.first, job.share.next_offset)
    if job.count < job.limit and first <= job.last:
        _take(job, first, _last_to_take(job, first, job.last))


def _last_to_take(job: _Acquisition, first: int, last: int) -> int:
    """The end of the log's batch in which the limit is reached."""
    left = job.limit - job.count
    if left >= last - first + 1:
        return last
    reached = first + left - 1
    for batch in job.fetched:
        if batch.first <= reached <= batch.last:
            return min(batch.last, last)
    return reached


def _take(job: _Acquisition, first: int, last: int) -> None:
    left = job.limit - job.count
    if job.wanted.is_limit_exact:
        _take_exactly(job, first, last, left)
        return
    for range_first, range_last in _divided(job, first, last):
        job.share.add_acquired(range_first, range_last, _locked(job))
        job.ranges.append(Acquired(range_first, range_last, 1))
    job.count += last - first + 1


def _take_exactly(job: _Acquisition, first: int, last: int, limit: int) -> None:
    """The first records of a batch; the others are in flight, too, and available at once."""
    batch = job.share.add_acquired(first, last, _locked(job))
    taken = min(limit, batch.size)
    if taken < batch.size:
        for one in batch.split()[taken:]:
            one.settle(AVAILABLE)
            one.count = 0
        job.share.note_available()
    job.ranges.append(Acquired(first, first + taken - 1, 1))
    job.count += taken


def _locked(job: _Acquisition) -> Delivery:
    return Delivery(ACQUIRED, 1, job.member_id, job.lock_until_ms)


def _divided(job: _Acquisition, first: int, last: int) -> list[tuple[int, int]]:
    """Ranges of about the wanted size, which end where batches of the log end."""
    if last - first + 1 <= job.wanted.batch_size:
        return [(first, last)]
    ranges = []
    for batch in job.fetched:
        if batch.first > last:
            break
        if batch.first - first >= job.wanted.batch_size:
            ranges.append((first, batch.first - 1))
            first = batch.first
    return [*ranges, (first, last)]


def without(ranges: Sequence[Acquired], aborted: Sequence[LogBatch]) -> list[Acquired]:
    """The acquired ranges without the batches of aborted transactions, both in order."""
    result: list[Acquired] = []
    for one in ranges:
        first = one.first
        for batch in aborted:
            if batch.last < first or batch.first > one.last:
                continue
            if first < batch.first:
                result.append(one._replace(first=first, last=batch.first - 1))
            first = batch.last + 1
        if first <= one.last:
            result.append(one._replace(first=first))
    return result
