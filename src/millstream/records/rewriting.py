"""A batch with fewer records: the same header, but for what the records decide.

Offsets, producer, sequence and leader epoch stay, so that a producer's state and a
consumer's position mean the same before and after.
"""

import struct
from typing import Final

from millstream.records.batch import (
    CODEC_MASK,
    CRC_START,
    DELETE_HORIZON_MASK,
    HEADER_BYTES,
    LENGTH_FIELD_END,
    BatchView,
)
from millstream.records.checksum import crc32c
from millstream.records.compression import compress

# Count, records, base timestamp, max timestamp, attributes: see `Rewriter.filter_records`.
Filtered = tuple[int, bytes, int, int, int]

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_UINT32: Final = struct.Struct(">I")
_TIMESTAMPS: Final = struct.Struct(">qq")


def rebuilt(batch: BatchView, filtered: Filtered) -> bytearray:
    """The batch with these records, under the codec that its producer chose."""
    count, records, base_timestamp_ms, max_timestamp_ms, attributes = filtered
    made = bytearray(batch.buffer[:HEADER_BYTES])
    made += compress(batch.codec, records) if count else records
    _INT32.pack_into(made, LENGTH_FIELD_END - 4, len(made) - LENGTH_FIELD_END)
    _INT16.pack_into(made, CRC_START, attributes)
    _TIMESTAMPS.pack_into(made, 27, base_timestamp_ms, max_timestamp_ms)
    _INT32.pack_into(made, 57, count)
    _UINT32.pack_into(made, 17, crc32c(memoryview(made)[CRC_START:]))
    return made


def emptied(batch: BatchView) -> bytearray:
    """Only the header: a producer's last sequence number, or the end of a file."""
    attributes = batch.attributes & ~(CODEC_MASK | DELETE_HORIZON_MASK)
    return rebuilt(batch, (0, b"", -1, batch.max_timestamp_ms, attributes))
