"""A frame that is compared with what is expected, for `_receiving`: no Python, no GIL."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from millstream.records._record_walk cimport (
    BATCH_HEADER_BYTES,
    are_whole,
    has_ordinary_header,
    ms_get32,
    ms_get64,
)

cdef extern from "../../records/_native.h" nogil:
    uint32_t ms_crc32c(const uint8_t* p, size_t n)

cdef enum:
    # A group gets one entry in the offset index, which keeps about 4096 bytes between entries.
    GROUP_BYTES_MAX = 1 << 13
    # So that those of a group can be counted; more in one batch are well compressed, and rare.
    RECORDS_MAX = 1 << 20

# The fields of a produce frame and of a batch, see `wire.repeated` and `records.batch`.
cdef enum:
    SIZE_BYTES = 4
    CORRELATION_AT = 4
    AFTER_CORRELATION = 8
    END_BYTES = 3
    CRC_START = 21

# What became of a connection that had something to read.
cdef enum:
    UNEXPECTED = 0  # it receives by itself
    NOTHING = 1  # nothing was there after all
    OTHER = 2  # received, but it is something else
    EXPECTED = 3  # received, a batch to be written
    ANSWERED = 4  # written, an answer to be sent


cdef struct Item:
    int state
    int fd
    # What a frame has to begin with.
    const uint8_t* before
    size_t before_bytes
    # The frame, its size field first.
    uint8_t* data
    ssize_t received
    uint8_t* batch
    size_t batch_bytes
    int32_t records
    int attributes
    int64_t max_timestamp_ms
    uint8_t* answer
    size_t answer_bytes
    ssize_t sent
    int failure


cdef inline int recognize_batch(Item* item) noexcept nogil:
    cdef const uint8_t* batch = item.batch
    cdef size_t size = item.batch_bytes
    # Compressed records are looked at elsewhere.
    if size > GROUP_BYTES_MAX or not has_ordinary_header(batch, size):
        return OTHER
    item.attributes = 0
    # With a producer id: its sequence numbers are checked elsewhere.
    if <int64_t> ms_get64(batch + 43) >= 0:
        return OTHER
    item.records = <int32_t> ms_get32(batch + 57)
    if item.records > RECORDS_MAX:
        return OTHER
    item.max_timestamp_ms = <int64_t> ms_get64(batch + 35)
    if ms_crc32c(batch + CRC_START, size - CRC_START) != ms_get32(batch + 17):
        return OTHER
    # The timestamps of the records count, but only the batch's is compared with the limits.
    if not are_whole(
        batch + BATCH_HEADER_BYTES,
        size - BATCH_HEADER_BYTES,
        item.records,
        <int64_t> ms_get64(batch + 27),
        item.max_timestamp_ms,
    ):
        return OTHER
    return EXPECTED


cdef inline int recognize(Item* item, size_t frame_bytes_max) noexcept nogil:
    """OTHER, or EXPECTED with the batch. As `wire.repeated`, then as `records.validation`
    for a batch without a producer id, a transaction or anything else that takes a decision.
    """
    cdef uint8_t* frame = item.data + SIZE_BYTES
    cdef size_t size, at = item.before_bytes, end, length = 0
    cdef int shift = 0
    cdef uint8_t byte = 0x80
    if item.received < SIZE_BYTES:
        return OTHER
    size = ms_get32(item.data)
    if size != <size_t> item.received - SIZE_BYTES or size > frame_bytes_max:
        return OTHER
    # Five bytes are the longest length there is.
    if at + 5 + END_BYTES > size:
        return OTHER
    end = size - END_BYTES
    if frame[end] or frame[end + 1] or frame[end + 2]:
        return OTHER
    if memcmp(frame, item.before, CORRELATION_AT) != 0 or memcmp(
        frame + AFTER_CORRELATION, item.before + AFTER_CORRELATION, at - AFTER_CORRELATION
    ) != 0:
        return OTHER
    while byte >= 0x80 and shift < 35:
        byte = frame[at]
        at += 1
        length |= <size_t> (byte & 0x7F) << shift
        shift += 7
    if at + length != end + 1:
        return OTHER
    item.batch = frame + at
    item.batch_bytes = end - at
    return recognize_batch(item)
