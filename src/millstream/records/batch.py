"""The header of a record batch, format v2: 61 bytes, and the records left alone.

A `BatchView` reads and restamps the header in place over someone else's memory. The CRC
covers everything from `attributes` on, so base offset and partition leader epoch, which
the broker fills in, can be changed without a new checksum.

    base_offset             int64   0
    batch_length            int32   8    bytes after this field
    partition_leader_epoch  int32  12
    magic                   int8   16
    crc                     uint32 17
    attributes              int16  21    codec 0-2, timestamp type 3, transactional 4,
                                         control 5, delete horizon 6
    last_offset_delta       int32  23
    base_timestamp          int64  27    (or the delete horizon, when that bit is set)
    max_timestamp           int64  35
    producer_id             int64  43
    producer_epoch          int16  51
    base_sequence           int32  53
    record_count            int32  57
    records                        61

Knows bytes only: no files, no offsets of a log, no time.
"""

import struct
from collections.abc import Iterator
from typing import Final

from millstream.model import Codec, TimestampType
from millstream.records.checksum import crc32c

HEADER_BYTES: Final = 61
# What length and magic need; a reader of a file needs at least this much.
PREFIX_BYTES: Final = 17
LENGTH_FIELD_END: Final = 12
_LENGTH_AT: Final = 8
CRC_START: Final = 21
MAGIC: Final = 2

CODEC_MASK: Final = 0x07
TIMESTAMP_TYPE_MASK: Final = 0x08
TRANSACTIONAL_MASK: Final = 0x10
CONTROL_MASK: Final = 0x20
DELETE_HORIZON_MASK: Final = 0x40

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
assert HEADER.size == HEADER_BYTES
_PREFIX: Final = struct.Struct(">qiib")
_BASE_AND_EPOCH: Final = struct.Struct(">qii")
_CODECS: Final = tuple(Codec)
assert all(number == codec for number, codec in enumerate(_CODECS))
_INT64: Final = struct.Struct(">q")
_INT32: Final = struct.Struct(">i")
_UINT32: Final = struct.Struct(">I")
_INT16: Final = struct.Struct(">h")


class BatchView:
    """One batch at the start of `buffer`; the header's fields are read once.

    The buffer may be longer than the batch. `size_bytes` is trusted only after
    `split_batches` or the caller has checked it against the buffer.
    """

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp_ms",
        "buffer",
        "crc",
        "last_offset_delta",
        "magic",
        "max_timestamp_ms",
        "partition_leader_epoch",
        "producer_epoch",
        "producer_id",
        "record_count",
        "size_bytes",
    )

    attributes: int
    base_offset: int
    base_sequence: int
    base_timestamp_ms: int
    buffer: memoryview
    crc: int
    last_offset_delta: int
    magic: int
    max_timestamp_ms: int
    partition_leader_epoch: int
    producer_epoch: int
    producer_id: int
    record_count: int
    size_bytes: int

    def __init__(self, buffer: memoryview) -> None:
        (
            self.base_offset,
            length,
            self.partition_leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp_ms,
            self.max_timestamp_ms,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        ) = HEADER.unpack_from(buffer)
        self.size_bytes = length + LENGTH_FIELD_END
        self.buffer = buffer

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence numbers wrap from 2^31-1 to 0."""
        if self.base_sequence < 0:
            return self.base_sequence
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def codec(self) -> Codec:
        """Raises ValueError for codec numbers that do not exist."""
        number = self.attributes & CODEC_MASK
        # A call of the enum takes as long as reading the header.
        return _CODECS[number] if number < len(_CODECS) else Codec(number)

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType(1 if self.attributes & TIMESTAMP_TYPE_MASK else 0)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_MASK)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_MASK)

    @property
    def records(self) -> memoryview:
        """The records, compressed as the attributes say."""
        return self.buffer[HEADER_BYTES : self.size_bytes]

    @property
    def bytes(self) -> memoryview:
        return self.buffer[: self.size_bytes]

    def crc_is_valid(self) -> bool:
        return crc32c(self.buffer[CRC_START : self.size_bytes]) == self.crc

    def stamped(self, base_offset: int, leader_epoch: int) -> memoryview:
        """The bytes, with the batch's place in the log. No new checksum is needed."""
        _BASE_AND_EPOCH.pack_into(
            self.buffer, 0, base_offset, self.size_bytes - LENGTH_FIELD_END, leader_epoch
        )
        self.base_offset = base_offset
        self.partition_leader_epoch = leader_epoch
        return self.buffer

    def stamp_append_time(self, now_ms: int) -> None:
        """Make this a LogAppendTime batch. Readers take max_timestamp for every record."""
        self._stamp_time(self.attributes | TIMESTAMP_TYPE_MASK, now_ms)

    def stamp_create_time(self, newest_ms: int) -> None:
        """Make this a CreateTime batch whose newest record has this timestamp."""
        self._stamp_time(self.attributes & ~TIMESTAMP_TYPE_MASK, newest_ms)

    def _stamp_time(self, attributes: int, max_timestamp_ms: int) -> None:
        self.attributes = attributes
        self.max_timestamp_ms = max_timestamp_ms
        _INT16.pack_into(self.buffer, CRC_START, attributes)
        _INT64.pack_into(self.buffer, 35, max_timestamp_ms)
        self.crc = crc32c(self.buffer[CRC_START : self.size_bytes])
        _UINT32.pack_into(self.buffer, 17, self.crc)


def batch_size_at(data: memoryview, position: int) -> int:
    """What the header at `position` says, of which at least the length must be there."""
    length: int = _INT32.unpack_from(data, position + _LENGTH_AT)[0]
    return length + LENGTH_FIELD_END


def split_batches(data: memoryview) -> Iterator[BatchView]:
    """The batches that lie back to back in `data`.

    Raises ValueError when a length is impossible or the data ends inside a batch.
    """
    position = 0
    end = len(data)
    while position < end:
        if end - position < HEADER_BYTES:
            raise ValueError(f"{end - position} bytes are too few for a batch header")
        batch = BatchView(data[position:])
        if batch.size_bytes < HEADER_BYTES or batch.size_bytes > end - position:
            raise ValueError(f"batch says {batch.size_bytes} bytes, {end - position} are there")
        yield batch
        position += batch.size_bytes
