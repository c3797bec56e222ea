"""Checking and searching the records of a batch: the twin of `_walk.pyx`, value for value."""

from array import array
from typing import Final

from millstream.model import NO_TIMESTAMP_MS
from millstream.records.batch import HEADER_BYTES, MAGIC, BatchView

NAME: Final = "pure Python"
KEPT_MAX: Final = 128

# Problem, index, null keys and their number, bad times and their number, largest timestamp.
Found = tuple[int, int, list[int], int, list[tuple[int, int]], int, int]

(_NONE, _ENDS_EARLY, _BYTES_LEFT, _BAD_NUMBER, _BAD_SIZE, _BAD_HEADERS, _BAD_OFFSET) = range(7)
# A longer number is none: it could exceed 64 bits.
_DIGITS_MAX: Final = 18
_NEVER: Final = 2**63 - 1
_INT64_SIGN: Final = 1 << 63
_INT64_MASK: Final = (1 << 64) - 1


class _Stopped(Exception):
    def __init__(self, problem: int) -> None:
        self.problem = problem


class _Walk:
    __slots__ = ("at", "data", "end")

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.at = 0
        self.end = len(data)

    def number(self, bits: int) -> int:
        """A zigzag number. Bits above the last are dropped, as Java drops them."""
        value = shift = 0
        while True:
            if self.at >= self.end:
                raise _Stopped(_ENDS_EARLY)
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                value &= (1 << bits) - 1
                return (value >> 1) ^ -(value & 1)
            shift += 7
            if shift > (28 if bits == 32 else 63):
                raise _Stopped(_BAD_NUMBER)

    def skip(self, length: int) -> None:
        """-1 is a null; of other negative lengths Java makes a null, and librdkafka an error."""
        if not -1 <= length <= self.end - self.at:
            raise _Stopped(_BAD_SIZE)
        self.at += max(length, 0)

    def headers(self) -> None:
        count = self.number(32)
        # Every header takes two bytes at least.
        if not 0 <= count <= self.end - self.at:
            raise _Stopped(_BAD_HEADERS)
        for _ in range(count):
            length = self.number(32)
            if length < 0:
                raise _Stopped(_BAD_HEADERS)
            self.skip(length)
            self.skip(self.number(32))

    def read(self, length: int) -> bytes | None:
        """What `skip` passes over."""
        begin = self.at
        self.skip(length)
        return None if length < 0 else bytes(self.data[begin : self.at])

    def times(self, names: tuple[bytes, bytes]) -> list[int]:
        """Of the headers of a record. Of two with the same name the last counts."""
        found = [0, _NEVER]
        count = self.number(32)
        if not 0 <= count <= self.end - self.at:
            raise _Stopped(_BAD_HEADERS)
        for _ in range(count):
            length = self.number(32)
            if length < 0:
                raise _Stopped(_BAD_HEADERS)
            name = self.read(length)
            value = self.read(self.number(32))
            if name in names:
                which = names.index(name)
                found[which] = _decimal(value, (0, _NEVER)[which])
        return found

    def timed_record(
        self, stop: int, last_delta: int, names: tuple[bytes, bytes]
    ) -> tuple[int, int, int]:
        """The offset delta and both times. Compaction leaves gaps between the deltas."""
        self.end = stop
        size = self.number(32)
        if not 1 <= size <= stop - self.at:
            raise _Stopped(_BAD_SIZE)
        self.end = self.at + size
        self.at += 1
        self.number(64)
        delta = self.number(32)
        if delta <= last_delta:
            raise _Stopped(_BAD_OFFSET)
        self.skip(self.number(32))
        self.skip(self.number(32))
        not_before, not_after = self.times(names)
        if self.at != self.end:
            raise _Stopped(_BAD_SIZE)
        return delta, not_before, not_after

    def record(self, index: int, stop: int) -> tuple[int, int]:
        """The timestamp delta and the length of the key."""
        self.end = stop
        size = self.number(32)
        if not 0 <= size <= stop - self.at:
            raise _Stopped(_BAD_SIZE)
        self.end = self.at + size
        if size < 1:
            raise _Stopped(_ENDS_EARLY)
        self.at += 1
        timestamp = self.number(64)
        if self.number(32) != index:
            raise _Stopped(_BAD_OFFSET)
        key_length = self.number(32)
        self.skip(key_length)
        self.skip(self.number(32))
        self.headers()
        if self.at != self.end:
            raise _Stopped(_BAD_SIZE)
        return timestamp, key_length


def is_ordinary(
    data: bytes | bytearray | memoryview,
    bytes_max: int,
    earliest: int,
    latest: int,
    needs_key: bool,
) -> bool:
    if not HEADER_BYTES <= len(data) <= bytes_max:
        return False
    batch = BatchView(memoryview(data))
    if (
        batch.magic != MAGIC
        or batch.base_offset
        or batch.size_bytes != len(data)
        or batch.attributes
        or batch.record_count <= 0
        or batch.last_offset_delta != batch.record_count - 1
        or (batch.producer_id >= 0 and (batch.producer_epoch < 0 or batch.base_sequence < 0))
    ):
        return False
    found = walk_records(
        data,
        HEADER_BYTES,
        len(data),
        batch.record_count,
        batch.base_timestamp_ms,
        batch.max_timestamp_ms,
        earliest,
        latest,
        needs_key,
    )
    return found is None


def walk_records(
    data: bytes | bytearray | memoryview,
    start: int,
    stop: int,
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    earliest: int,
    latest: int,
    needs_key: bool,
) -> Found | None:
    if not 0 <= start <= stop <= len(data):
        raise ValueError("the records are outside of the data")
    walk = _Walk(memoryview(data))
    walk.at = start
    problem = index = null_keys = bad_times = 0
    largest = NO_TIMESTAMP_MS
    key_indexes: list[int] = []
    times: list[tuple[int, int]] = []
    try:
        while index < count:
            delta, key_length = walk.record(index, stop)
            if needs_key and key_length < 0:
                null_keys += 1
                if null_keys <= KEPT_MAX:
                    key_indexes.append(index)
            timestamp = _wrapped(base_timestamp + delta)
            if timestamp != NO_TIMESTAMP_MS and not earliest <= timestamp <= latest:
                bad_times += 1
                if bad_times <= KEPT_MAX:
                    times.append((index, timestamp))
            largest = max(largest, timestamp)
            index += 1
        if walk.at != stop:
            problem = _BYTES_LEFT
    except _Stopped as stopped:
        problem = stopped.problem
    if not problem and not null_keys and not bad_times and largest == max_timestamp:
        return None
    return problem, index, key_indexes, null_keys, times, bad_times, largest


def find_time(
    data: bytes | bytearray | memoryview,
    count: int,
    base_timestamp: int,
    wanted: int,
    delta_min: int,
) -> tuple[int, int, int]:
    walk = _Walk(memoryview(data))
    stop = len(walk.data)
    timestamp = 0
    try:
        for _ in range(count):
            walk.end = stop
            size = walk.number(32)
            if not 1 <= size <= stop - walk.at:
                return _BAD_SIZE, -1, timestamp
            walk.end = record_end = walk.at + size
            walk.at += 1
            timestamp = _wrapped(base_timestamp + walk.number(64))
            delta = walk.number(32)
            if timestamp >= wanted and delta >= delta_min:
                return _NONE, delta, timestamp
            walk.at = record_end
    except _Stopped as stopped:
        return stopped.problem, -1, timestamp
    return _NONE, -1, timestamp


def find_delivery_times(
    data: bytes | bytearray | memoryview, count: int, not_before: bytes, not_after: bytes
) -> tuple[bytes, int, int]:
    whole = bytes(data)
    if not_before not in whole and not_after not in whole:
        # Searching is much faster than reading here.
        return b"", 0, _NEVER
    walk = _Walk(memoryview(whole))
    found = array("q")
    delta, due, expired_after = -1, 0, 0
    try:
        for _ in range(count):
            delta, *times = walk.timed_record(len(whole), delta, (not_before, not_after))
            due, expired_after = max(due, times[0]), max(expired_after, times[1])
            if times != [0, _NEVER]:
                found.extend((delta, *times))
    except _Stopped:
        pass
    return found.tobytes(), due, expired_after if found else _NEVER


def _decimal(value: bytes | None, otherwise: int) -> int:
    if value is None or len(value) > _DIGITS_MAX or not value.isdigit():
        return otherwise
    return int(value)


def _wrapped(value: int) -> int:
    """Round the end of 64 bits, as Java's numbers go."""
    return ((value + _INT64_SIGN) & _INT64_MASK) - _INT64_SIGN
