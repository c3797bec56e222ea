"""Records of a share group that are not due yet, or have expired.

Before records are acquired, those that were fetched are looked at: what is not due waits in
flight until it is, what has expired is archived. A record that waits does not count against
the limit of records in flight, and neither does what was finished behind it.

Knows no log, no loop and no clock.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from millstream.coordinators.share.acquiring import LogBatch
from millstream.coordinators.share.partition import SharePartition
from millstream.coordinators.share.state_batches import ARCHIVED, StateBatch
from millstream.records.delivery_times import RecordTimes

# Neighbours that are due within this time become available together, with the last of them.
_TOGETHER_MS: Final = 50
# Records with times that are looked at together: for more, others would wait.
_LOOKED_AT_MAX: Final = 200


class Clocks(NamedTuple):
    """The wall clock, which headers go by, and the node's uptime, which timers go by."""

    wall_ms: int
    uptime_ms: int


class _Held(NamedTuple):
    """Neighbours that have expired, or are due at the same time of the wall clock."""

    first: int
    last: int
    # None: they have expired.
    due_ms: int | None


class HeldBack(NamedTuple):
    # Only these may be acquired now: there was no room to look at others.
    fetched: list[LogBatch]
    # Expired, which should be stored.
    archived: list[StateBatch]
    # Is anything else to be found now?
    has_changed: bool


def hold_back(
    share: SharePartition,
    fetched: Sequence[LogBatch],
    times: Iterable[RecordTimes],
    *,
    clocks: Clocks,
) -> HeldBack:
    """`times` are those of the records that were fetched, in order. Records behind the first of
    them are left for another look."""
    looked_at = list(islice(times, _LOOKED_AT_MAX + 1))
    if len(looked_at) > _LOOKED_AT_MAX:
        fetched = _up_to(fetched, looked_at.pop().offset - 1)
    archived: list[StateBatch] = []
    before = (share.next_offset, share.delays.count)
    new_last = min(fetched[-1].last, share.next_offset + _room(share) - 1)
    for held in _held(looked_at, clocks.wall_ms):
        in_flight_last = min(held.last, share.next_offset - 1)
        if held.first <= in_flight_last:
            _hold_in_flight(share, held._replace(last=in_flight_last), clocks, archived)
        first, end = max(held.first, share.next_offset), min(held.last, new_last)
        if first <= end:
            _hold_new(share, held._replace(first=first, last=end), clocks, archived)
    share.forget_finished()
    may_be_acquired = _up_to(fetched, max(new_last, share.next_offset - 1))
    has_changed = bool(archived) or before != (share.next_offset, share.delays.count)
    return HeldBack(may_be_acquired, archived, has_changed)


def _up_to(fetched: Sequence[LogBatch], last: int) -> list[LogBatch]:
    return [
        LogBatch(batch.first, min(batch.last, last)) for batch in fetched if batch.first <= last
    ]


def _room(share: SharePartition) -> int:
    """How many new records may be in flight, if all of them are due."""
    if not share.delays.has_room:
        return 0
    return max(0, share.limits.in_flight_max - share.in_flight_count)


def _held(times: Sequence[RecordTimes], now_ms: int) -> Iterator[_Held]:
    run: _Held | None = None
    for one in times:
        if one.not_after_ms < now_ms:
            due_ms = None
        elif one.not_before_ms > now_ms:
            due_ms = one.not_before_ms
        else:
            continue
        if run is not None and run.last + 1 == one.offset and _is_together(run.due_ms, due_ms):
            latest = None if due_ms is None else max(due_ms, run.due_ms or 0)
            run = _Held(run.first, one.offset, latest)
            continue
        if run is not None:
            yield run
        run = _Held(one.offset, one.offset, due_ms)
    if run is not None:
        yield run


def _is_together(one: int | None, other: int | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) <= _TOGETHER_MS


def _uptime_ms(due_ms: int, clocks: Clocks) -> int:
    return clocks.uptime_ms + due_ms - clocks.wall_ms


def _hold_in_flight(
    share: SharePartition, held: _Held, clocks: Clocks, archived: list[StateBatch]
) -> None:
    if held.due_ms is None:
        archived += share.archive_available(held.first, held.last)
    else:
        share.postpone(held.first, held.last, until_ms=_uptime_ms(held.due_ms, clocks))


def _hold_new(
    share: SharePartition, held: _Held, clocks: Clocks, archived: list[StateBatch]
) -> None:
    """What is before it becomes available: it is acquired like records that are in flight."""
    if share.next_offset < held.first:
        share.add_available(share.next_offset, held.first - 1)
    share.add_available(held.first, held.last)
    if held.due_ms is None:
        share.archive_available(held.first, held.last)
        archived.append(StateBatch(held.first, held.last, ARCHIVED, 0))
    else:
        share.postpone(held.first, held.last, until_ms=_uptime_ms(held.due_ms, clocks))
