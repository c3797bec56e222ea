"""Aborted transactions of a log: looked up for a reader, and rebuilt after a crash.

The `.txnindex` files list the aborted transactions. Unlike the other indexes they cannot be
checked against the one batch they point at. So they are synced with the log, counted at a
clean stop, and rebuilt if entries are missing and for every segment that recovery checks.
"""

from collections.abc import Sequence

from millstream.storage.aborted_index import AbortedTransaction
from millstream.storage.segment import Segment
from millstream.storage.snapshots import Snapshots, replay_segment
from millstream.storage.values import FileRange


def aborted_in_range(
    segments: Sequence[Segment],
    number: int,
    offset: int,
    found: FileRange,
    *,
    upto_offset: int,
) -> list[AbortedTransaction]:
    """The aborted transactions with records in `found`, by their first offsets.

    `found` begins at `offset`, in segment `number` or a later one. A transaction's entry is
    in the segment where it ended, which may be any segment from there on.
    """
    if number == len(segments) - 1 and not segments[number].aborted.entries.count:
        # At the end of nearly every log.
        return []
    aborted: list[AbortedTransaction] = []
    end_offset = upto_offset
    for index in range(number, len(segments)):
        segment = segments[index]
        if segment.file is found.file:
            end_offset = _end_offset(segments, index, found, upto_offset)
        entries, is_complete = segment.aborted.between(offset, end_offset)
        aborted += entries
        if is_complete:
            break
    # Clients walk through the list while they read, so its order is part of the protocol.
    aborted.sort(key=lambda one: one.first_offset)
    return [one for one in aborted if one.first_offset < end_offset]


def _end_offset(segments: Sequence[Segment], index: int, found: FileRange, upto_offset: int) -> int:
    """An offset that the range does not reach, as close as the offset index can tell."""
    known = segments[index].offset_not_before(found.position + found.length)
    if known is None and index + 1 < len(segments):
        known = segments[index + 1].base_offset
    return upto_offset if known is None else min(known, upto_offset)


def lacks_aborted(segments: Sequence[Segment], expected: int) -> bool:
    """Whether an index is damaged, or all of them have fewer entries than at the last stop."""
    if not all(segment.aborted.is_sound() for segment in segments):
        return True
    return expected > 0 and count_aborted(segments) < expected


def count_aborted(segments: Sequence[Segment]) -> int:
    return sum(segment.aborted.entries.count for segment in segments)


def rebuild_aborted(segments: Sequence[Segment], first: int, snapshots: Snapshots) -> None:
    """Write the indexes of segments[first:] as if everything were appended again."""
    states = snapshots.load(segments[:first] or segments, segments[first].base_offset)
    for segment in segments[first:]:
        segment.aborted.replace(replay_segment(states, segment, segment.base_offset))
