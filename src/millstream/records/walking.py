"""Checking and searching the records of a batch without making objects of them.

Each loop exists twice, compiled and in Python, with the same result. `IMPLEMENTATION` is the
one in use; `PURE` is always there.
"""

from enum import IntEnum
from typing import TYPE_CHECKING, Final, Protocol, cast

from millstream.lazy_dataclass import dataclass
from millstream.records import _walk_pure

Bytes = bytes | bytearray | memoryview


class Problem(IntEnum):
    """Why records cannot be read; no consumer could get past them."""

    NONE = 0
    ENDS_EARLY = 1
    BYTES_LEFT = 2
    BAD_NUMBER = 3
    BAD_SIZE = 4
    BAD_HEADERS = 5
    BAD_OFFSET = 6


PROBLEM_TEXTS: Final = {
    Problem.ENDS_EARLY: "the batch ends inside record {index}",
    Problem.BYTES_LEFT: "there are bytes behind the last of {index} records",
    Problem.BAD_NUMBER: "record {index} has a number that is too long",
    Problem.BAD_SIZE: "record {index} has a wrong size",
    Problem.BAD_HEADERS: "record {index} has impossible headers",
    Problem.BAD_OFFSET: "record {index} has a wrong offset delta",
}


@dataclass(frozen=True, slots=True)
class Walked:
    """What was found. Of both lists only the first hundred or so are kept."""

    problem: Problem
    # The record with the problem.
    index: int
    null_keys: list[int]
    null_key_count: int
    # Index and timestamp.
    bad_times: list[tuple[int, int]]
    bad_time_count: int
    # -1 if none of the records has one.
    max_timestamp_ms: int

    @property
    def text(self) -> str:
        return PROBLEM_TEXTS[self.problem].format(index=self.index)


class Implementation(Protocol):
    NAME: str

    def is_ordinary(
        self, data: Bytes, bytes_max: int, earliest: int, latest: int, needs_key: bool
    ) -> bool: ...

    def walk_records(
        self,
        data: Bytes,
        start: int,
        stop: int,
        count: int,
        base_timestamp: int,
        max_timestamp: int,
        earliest: int,
        latest: int,
        needs_key: bool,
    ) -> _walk_pure.Found | None: ...

    def find_time(
        self, data: Bytes, count: int, base_timestamp: int, wanted: int, delta_min: int
    ) -> tuple[int, int, int]: ...

    def find_delivery_times(
        self, data: Bytes, count: int, not_before: bytes, not_after: bytes
    ) -> tuple[bytes, int, int]: ...


def _compiled() -> Implementation | None:
    if not TYPE_CHECKING:
        try:
            from millstream.records import _walk
        except ImportError:
            return None
    else:
        from millstream.records import _walk
    return cast(Implementation, _walk)


PURE: Final = cast(Implementation, _walk_pure)
COMPILED: Final = _compiled()
IMPLEMENTATION: Final = COMPILED or PURE


def walk(
    data: Bytes,
    start: int,
    stop: int,
    count: int,
    *,
    base_timestamp_ms: int,
    max_timestamp_ms: int,
    earliest_ms: int,
    latest_ms: int,
    needs_key: bool,
    implementation: Implementation = IMPLEMENTATION,
) -> Walked | None:
    """Walk over the `count` uncompressed records in `data[start:stop]`: are they whole, as a topic
    wants them, and the newest of `max_timestamp_ms`? None if they are.

    A record without a timestamp has -1, which is never out of range.
    """
    found = implementation.walk_records(
        data,
        start,
        stop,
        count,
        base_timestamp_ms,
        max_timestamp_ms,
        earliest_ms,
        latest_ms,
        needs_key,
    )
    return None if found is None else walked(found)


def walked(found: _walk_pure.Found) -> Walked:
    """What `walk_records` of an implementation has found."""
    problem, index, keys, key_count, times, time_count, max_timestamp_ms = found
    return Walked(Problem(problem), index, keys, key_count, times, time_count, max_timestamp_ms)


def find_time(
    records: Bytes,
    count: int,
    *,
    base_timestamp_ms: int,
    timestamp_ms: int,
    delta_min: int,
    implementation: Implementation = IMPLEMENTATION,
) -> tuple[int, int] | None:
    """Offset delta and timestamp of the first uncompressed record at `timestamp_ms` or later,
    among those with an offset delta of at least `delta_min`. Raises ValueError."""
    problem, delta, found_ms = implementation.find_time(
        records, count, base_timestamp_ms, timestamp_ms, delta_min
    )
    if problem != Problem.NONE:
        raise ValueError("a record does not fit its batch")
    return None if delta < 0 else (delta, found_ms)
