"""What became of records, as ranges of offsets: the form in which it is stored and sent.

Ranges are sorted and do not overlap, and neighbours differ in state or count.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

# The states of a record, with Kafka's numbers. Acquired is never stored: a lock ends with its node.
AVAILABLE: Final = 0
ACQUIRED: Final = 1
ACKNOWLEDGED: Final = 2
# The dead letter of the record has to be written; then it is archived (KIP-1191).
ARCHIVING: Final = 3
ARCHIVED: Final = 4
# In memory only: available, but not before its time.
DELAYED: Final = 16
# Nothing happens to these records any more.
FINISHED: Final = frozenset({ACKNOWLEDGED, ARCHIVED})


class StateBatch(NamedTuple):
    """Records of the same state; both offsets are included."""

    first: int
    last: int
    state: int
    delivery_count: int


def _rank(batch: StateBatch) -> tuple[int, int]:
    """Of two reports about a record the higher one is newer, in whatever order they arrive: a
    delivery raises the count, and within a delivery the state only rises."""
    return batch.delivery_count, batch.state


def combine(
    known: Sequence[StateBatch], news: Iterable[StateBatch], *, start_offset: int
) -> tuple[StateBatch, ...]:
    """The known ranges after the news, without what is below `start_offset`."""
    is_cut = bool(known) and known[0].first < start_offset
    batches = _cut(known, start_offset) if is_cut else list(known)
    for batch in _cut(news, start_offset):
        if not batches or batches[-1].last + 1 < batch.first:
            batches.append(batch)
        else:
            _overlay(batches, batch)
    return tuple(batches)


def _cut(batches: Iterable[StateBatch], start_offset: int) -> list[StateBatch]:
    return [
        batch if batch.first >= start_offset else batch._replace(first=start_offset)
        for batch in batches
        if batch.last >= start_offset
    ]


def _overlay(batches: list[StateBatch], new: StateBatch) -> None:
    """Put a range over sorted ones. Neighbours are included, because they may become one."""
    begin = bisect_left(batches, new.first - 1, key=_last)
    if _continues(batches, begin, new):
        batches[begin] = StateBatch(batches[begin].first, *new[1:])
        return
    end = begin
    while end < len(batches) and batches[end].first <= new.last + 1:
        end += 1
    pieces: list[StateBatch] = []
    position = new.first
    for old in batches[begin:end]:
        if old.first < new.first:
            pieces.append(old._replace(last=min(old.last, new.first - 1)))
        if position < old.first <= new.last:
            pieces.append(new._replace(first=position, last=old.first - 1))
        first, last = max(old.first, new.first), min(old.last, new.last)
        if first <= last:
            winner = old if _rank(old) > _rank(new) else new
            pieces.append(winner._replace(first=first, last=last))
            position = last + 1
        if old.last > new.last:
            if position <= new.last:
                pieces.append(new._replace(first=position))
                position = new.last + 1
            pieces.append(old._replace(first=max(old.first, new.last + 1)))
    if position <= new.last:
        pieces.append(new._replace(first=position))
    batches[begin:end] = joined(pieces)


def _continues(batches: list[StateBatch], index: int, new: StateBatch) -> bool:
    """Does a range only make the one at `index` longer? So it is with records that a consumer
    acknowledges one by one."""
    old = batches[index]
    if old.last + 1 != new.first or old[2:] != new[2:]:
        return False
    return index + 1 == len(batches) or batches[index + 1].first > new.last + 1


def _last(batch: StateBatch) -> int:
    return batch.last


def joined(batches: Iterable[StateBatch]) -> list[StateBatch]:
    """Adjacent ranges with the same state and count as one."""
    result: list[StateBatch] = []
    for batch in batches:
        before = result[-1] if result else None
        if before is not None and before.last + 1 == batch.first and before[2:] == batch[2:]:
            result[-1] = before._replace(last=batch.last)
        else:
            result.append(batch)
    return result
