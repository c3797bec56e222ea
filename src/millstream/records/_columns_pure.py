"""The loops over records, in Python: the same results as the compiled `_columns`, slower.

Used where the package was installed without a C compiler, and in tests as the reference
that the compiled module is held against. `Rewriter` holds the rule of compaction: which records
stay, and how long tombstones do. Here keys are held as BLAKE2b with 128 bits.
"""

from array import array
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

from millstream.records.batch import (
    CODEC_MASK,
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    HEADER_BYTES,
    MAGIC,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchView,
)
from millstream.records.builder import write_varint
from millstream.records.records import RECORD_BYTES_MIN, read_varint
from millstream.records.rewriting import Filtered, emptied, rebuilt

NAME: Final = "pure Python"
# Measured: a dict entry, a 16-byte digest and an integer.
ENTRY_BYTES: Final = 200

# Why a loop over batches stopped; the values are those of `columns.Stop`.
_END, _SPECIAL, _FULL, _DAMAGED = range(4)
_SPECIAL_MASK: Final = CODEC_MASK | TRANSACTIONAL_MASK | CONTROL_MASK
_INT64_MAX: Final = 2**63 - 1

Bytes = bytes | bytearray | memoryview


class _Part:
    """One record: where its pieces are in its batch."""

    __slots__ = (
        "end",
        "headers",
        "is_kept",
        "key",
        "offset_delta",
        "rest",
        "start",
        "timestamp_delta",
        "value",
    )

    start: int
    rest: int
    end: int
    headers: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    # None for null, else where it is.
    value: slice | None
    is_kept: bool


def _read_part(data: Bytes, position: int) -> _Part:
    part = _Part()
    part.start = position
    length, position = read_varint(data, position)
    part.end = position + length
    if length < RECORD_BYTES_MIN - 1 or part.end > len(data):
        raise ValueError("record does not fit its batch")
    part.timestamp_delta, position = read_varint(data, position + 1, bytes_max=10)
    if not -_INT64_MAX - 1 <= part.timestamp_delta <= _INT64_MAX:
        raise ValueError("timestamp does not fit 64 bits")
    part.offset_delta, position = read_varint(data, position)
    part.rest = position
    key, position = _read_field(data, position, part.end)
    part.key = None if key is None else bytes(data[key])
    part.value, part.headers = _read_field(data, position, part.end)
    if part.headers > part.end:
        raise ValueError("field does not fit its record")
    return part


def _read_field(data: Bytes, position: int, end: int) -> tuple[slice | None, int]:
    length, position = read_varint(data, position)
    if length < -1 or length > end - position:
        raise ValueError("field does not fit its record")
    if length < 0:
        return None, position
    return slice(position, position + length), position + length


def _read_parts(data: Bytes, batch: BatchView) -> list[_Part]:
    """All records of a batch; ValueError when the bytes do not add up."""
    count = batch.record_count
    if count < 0 or count * RECORD_BYTES_MIN > len(data):
        raise ValueError("more records than bytes")
    parts = []
    position, previous = 0, -1
    for _ in range(count):
        part = _read_part(data, position)
        if part.offset_delta <= previous or part.offset_delta > batch.last_offset_delta:
            raise ValueError("record offsets are out of order")
        previous, position = part.offset_delta, part.end
        parts.append(part)
    if position != len(data):
        raise ValueError("bytes after the last record")
    return parts


def _next_batch(data: memoryview, position: int) -> tuple[BatchView | None, int]:
    """The batch at `position`, or why there is none."""
    if len(data) - position < HEADER_BYTES:
        return None, _END
    batch = BatchView(data[position:])
    if batch.magic != MAGIC or batch.size_bytes < HEADER_BYTES or batch.last_offset_delta < 0:
        return None, _DAMAGED
    if batch.size_bytes > len(data) - position:
        return None, _END
    return batch, _END


class KeyMap:
    """The newest offset of each key, for at most `capacity` keys."""

    def __init__(
        self, capacity: int, load_factor: float = 0.9, secret: bytes | None = None
    ) -> None:
        self.capacity = capacity
        self.latest_offset = -1
        self._offsets: dict[bytes, int] = {}

    @property
    def count(self) -> int:
        return len(self._offsets)

    def offset_of(self, key: bytes) -> int:
        """The newest offset of a key; -1 when it is not known."""
        return self._offsets.get(blake2b(key, digest_size=16).digest(), -1)

    def add_batches(self, data: Bytes, position: int, from_offset: int) -> tuple[int, int]:
        """Take in plain batches from `position` on: where it stopped, and why."""
        view = memoryview(data)
        while True:
            batch, stop = _next_batch(view, position)
            if batch is None:
                return position, stop
            if batch.attributes & _SPECIAL_MASK:
                return position, _SPECIAL
            if batch.last_offset >= from_offset:
                stop = self.add_records(
                    bytes(batch.records),
                    batch.base_offset,
                    batch.last_offset_delta,
                    batch.record_count,
                    from_offset,
                )
                if stop != _END:
                    return position, stop
            position += batch.size_bytes

    def add_records(
        self, records: Bytes, base_offset: int, last_delta: int, count: int, from_offset: int
    ) -> int:
        """Take in the records of one batch, unpacked: 0 when they are in."""
        offsets = self._offsets
        position, previous = 0, -1
        try:
            for _ in range(count):
                part = _read_part(records, position)
                if part.offset_delta <= previous or part.offset_delta > last_delta:
                    return _DAMAGED
                previous, position = part.offset_delta, part.end
                offset = base_offset + previous
                if part.key is None or offset < from_offset:
                    continue
                digest = blake2b(part.key, digest_size=16).digest()
                if len(offsets) >= self.capacity and digest not in offsets:
                    # Everything before this record is in.
                    self.latest_offset = offset - 1
                    return _FULL
                offsets[digest] = max(offset, offsets.get(digest, -1))
        except ValueError:
            return _DAMAGED
        if position != len(records):
            return _DAMAGED
        self.latest_offset = base_offset + last_delta
        return _END


class Rewriter:
    """Batches without the records that `keys` knows newer ones of.

    What is written gathers in a buffer for `take_bytes`; `take_marks` has, for about every
    `interval_bytes`, four numbers: the position of a batch, its last offset, the largest
    timestamp up to there and the offset that has it. That is what indexes are made of.
    """

    def __init__(
        self,
        keys: KeyMap,
        kept_offsets: Iterable[int],
        now_ms: int,
        delete_retention_ms: int,
        interval_bytes: int,
    ) -> None:
        self._keys = keys
        self._kept_offsets = frozenset(kept_offsets)
        self._now_ms = now_ms
        # Any number that an option may have: a sum beyond the largest one does not fit its field.
        self._horizon_ms = min(now_ms + delete_retention_ms, _INT64_MAX)
        self._interval_bytes = interval_bytes
        self._out = bytearray()
        self._marks = array("q")
        self._bytes_since_mark = 0
        self.position = 0
        self.max_timestamp_ms = -1
        self.max_timestamp_offset = -1
        self.records_read = 0
        self.records_kept = 0
        self.batches_kept = 0

    def rewrite_batches(self, data: Bytes, position: int, is_end: bool) -> tuple[int, int]:
        """Rewrite plain batches from `position` on: where it stopped, and why.

        With `is_end`, the batch that ends with `data` is kept even if it gets empty.
        """
        view = memoryview(data)
        while True:
            batch, stop = _next_batch(view, position)
            if batch is None:
                return position, stop
            if not batch.crc_is_valid():
                return position, _DAMAGED
            if batch.attributes & _SPECIAL_MASK:
                return position, _SPECIAL
            is_last = is_end and position + batch.size_bytes == len(view)
            try:
                self._rewrite_batch(batch, is_last)
            except ValueError:
                return position, _DAMAGED
            position += batch.size_bytes

    def _rewrite_batch(self, batch: BatchView, is_last: bool) -> None:
        is_kept_empty = is_last or batch.last_offset in self._kept_offsets
        if batch.record_count == 0 and len(batch.records) == 0:
            if is_kept_empty:
                self.write(emptied(batch))
            return
        filtered = self.filter_records(batch.bytes, bytes(batch.records), False, False)
        if filtered is None:
            self.write(batch.bytes)
        elif filtered[0] > 0:
            self.write(rebuilt(batch, filtered))
        elif is_kept_empty:
            self.write(emptied(batch))

    def filter_records(
        self, header_bytes: Bytes, records: Bytes, is_kept_whole: bool, is_horizon_due: bool
    ) -> Filtered | None:
        """The records of one batch that stay, unpacked, and what its header then says:
        (count, records, base timestamp, max timestamp, attributes); None if all is as it was.
        """
        batch = BatchView(memoryview(header_bytes))
        parts = _read_parts(records, batch)
        kept = parts if is_kept_whole else [p for p in parts if self._is_kept(p, batch)]
        self.records_read += len(parts)
        self.records_kept += len(kept)
        has_horizon = bool(batch.attributes & DELETE_HORIZON_MASK)
        if not is_kept_whole:
            is_horizon_due = any(part.value is None for part in kept)
        is_horizon_due = is_horizon_due and not has_horizon
        if len(kept) == len(parts) and not is_horizon_due:
            return None
        attributes, base_timestamp_ms = batch.attributes, batch.base_timestamp_ms
        shift_ms = 0
        if is_horizon_due:
            attributes |= DELETE_HORIZON_MASK
            shift_ms = base_timestamp_ms - self._horizon_ms
            base_timestamp_ms = self._horizon_ms
        written = b"".join(_shifted(part, records, shift_ms) for part in kept)
        max_timestamp_ms = batch.max_timestamp_ms
        if kept and not batch.attributes & TIMESTAMP_TYPE_MASK:
            newest_delta = max(part.timestamp_delta for part in kept)
            max_timestamp_ms = _wrapped(batch.base_timestamp_ms + newest_delta)
        return len(kept), written, base_timestamp_ms, max_timestamp_ms, attributes

    def _is_kept(self, part: _Part, batch: BatchView) -> bool:
        """The newest record of a key stays. A tombstone stays until its batch's horizon, which the
        first round that keeps it sets to `delete.retention.ms` from then."""
        offset = batch.base_offset + part.offset_delta
        if offset > self._keys.latest_offset:
            return True
        if part.key is None or offset < self._keys.offset_of(part.key):
            return False
        if part.value is not None:
            return True
        has_horizon = bool(batch.attributes & DELETE_HORIZON_MASK)
        return not (has_horizon and self._now_ms >= batch.base_timestamp_ms)

    def write(self, batch: Bytes) -> None:
        """Put a whole batch into the output as it is."""
        self._out += batch
        header = BatchView(memoryview(batch))
        if header.max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = header.max_timestamp_ms
            self.max_timestamp_offset = header.last_offset
        if self._bytes_since_mark > self._interval_bytes:
            self._marks.extend(
                (
                    self.position,
                    header.last_offset,
                    self.max_timestamp_ms,
                    self.max_timestamp_offset,
                )
            )
            self._bytes_since_mark = 0
        self._bytes_since_mark += len(batch)
        self.position += len(batch)
        self.batches_kept += 1

    def take_bytes(self) -> bytes:
        data, self._out = bytes(self._out), bytearray()
        return data

    def take_marks(self) -> bytes:
        """Native 64-bit integers, four to a mark."""
        data, self._marks = self._marks.tobytes(), array("q")
        return data


def _wrapped(number: int) -> int:
    """As 64 bits hold it: a record may be further from its horizon than they reach, and clients
    add up with as many."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _shifted(part: _Part, records: Bytes, shift_ms: int) -> bytes:
    """The record's bytes, with a timestamp that counts from `shift_ms` earlier."""
    if shift_ms == 0:
        return bytes(records[part.start : part.end])
    body = bytearray(1)
    write_varint(body, _wrapped(part.timestamp_delta + shift_ms))
    write_varint(body, part.offset_delta)
    body += records[part.rest : part.end]
    framed = bytearray()
    write_varint(framed, len(body))
    return bytes(framed + body)


class _Strings:
    """Arrow's layout of byte strings: a bit for each that is not null, where each ends."""

    def __init__(self) -> None:
        self.validity = bytearray()
        self.ends = array("i", [0])
        self.data = bytearray()

    def add(self, data: Bytes | None) -> None:
        index = len(self.ends) - 1
        if index % 8 == 0:
            self.validity.append(0)
        if data is not None:
            self.validity[index // 8] |= 1 << (index % 8)
            self.data += data
        self.ends.append(len(self.data))

    def cut(self, count: int) -> None:
        """Take out all from `count` on."""
        del self.ends[count + 1 :], self.data[self.ends[-1] :], self.validity[(count + 7) // 8 :]
        if count % 8:
            self.validity[-1] &= (1 << (count % 8)) - 1


class ColumnsBuilder:
    """Records, one batch after the other, into the buffers of `columns.Columns`."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.count = 0
        self._offsets = array("q")
        self._timestamps = array("q")
        self._keys = _Strings()
        self._values = _Strings()
        self._header_ends = array("i", [0])
        self._names = _Strings()
        self._contents = _Strings()

    def add(self, header_bytes: Bytes, records: Bytes, from_offset: int, upto_offset: int) -> None:
        """The records of one batch, unpacked, with offsets in [from_offset, upto_offset).

        Raises ValueError where they do not add up; then none of them is taken in.
        """
        count, header_count = self.count, len(self._names.ends) - 1
        try:
            self._add(header_bytes, records, from_offset, upto_offset)
        except ValueError:
            self._cut(count, header_count)
            raise

    def _cut(self, count: int, header_count: int) -> None:
        """Take out the records and headers from these numbers on."""
        self.count = count
        del self._offsets[count:], self._timestamps[count:], self._header_ends[count + 1 :]
        self._keys.cut(count)
        self._values.cut(count)
        self._names.cut(header_count)
        self._contents.cut(header_count)

    def _add(self, header_bytes: Bytes, records: Bytes, from_offset: int, upto_offset: int) -> None:
        held = (self._keys, self._values, self._names, self._contents)
        if sum(len(each.data) for each in held) + len(records) > 2**31 - 1:
            raise ValueError("more than 2 GiB of records in one go")
        batch = BatchView(memoryview(header_bytes))
        for part in _read_parts(records, batch):
            offset = batch.base_offset + part.offset_delta
            if not from_offset <= offset < upto_offset:
                continue
            timestamp_ms = batch.base_timestamp_ms + part.timestamp_delta
            if batch.attributes & TIMESTAMP_TYPE_MASK:
                timestamp_ms = batch.max_timestamp_ms
            if not -_INT64_MAX - 1 <= timestamp_ms <= _INT64_MAX:
                raise ValueError("timestamp does not fit 64 bits")
            self._offsets.append(offset)
            self._timestamps.append(timestamp_ms)
            self._keys.add(part.key)
            self._values.add(None if part.value is None else records[part.value])
            self._add_headers(records, part)
            self.count += 1

    def _add_headers(self, records: Bytes, part: _Part) -> None:
        count, position = read_varint(records, part.headers)
        if count < 0 or count * 2 > part.end - position:
            raise ValueError("more headers than bytes")
        for _ in range(count):
            name, position = _read_field(records, position, part.end)
            if name is None:
                raise ValueError("header without a name")
            self._names.add(records[name])
            content, position = _read_field(records, position, part.end)
            self._contents.add(None if content is None else records[content])
        if position != part.end:
            raise ValueError("record length is off")
        self._header_ends.append(len(self._names.ends) - 1)

    def take(self) -> tuple[bytes, ...]:
        """The fourteen buffers, in the order of the fields of `columns.Columns`; then the
        builder is empty."""
        keys, values, contents = self._keys, self._values, self._contents
        found = (
            self._offsets.tobytes(),
            self._timestamps.tobytes(),
            bytes(keys.validity),
            keys.ends.tobytes(),
            bytes(keys.data),
            bytes(values.validity),
            values.ends.tobytes(),
            bytes(values.data),
            self._header_ends.tobytes(),
            self._names.ends.tobytes(),
            bytes(self._names.data),
            bytes(contents.validity),
            contents.ends.tobytes(),
            bytes(contents.data),
        )
        self._begin()
        return found
