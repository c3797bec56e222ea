# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The batches of a repeated produce, compiled; `_produced_pure` is the same in Python.

One pass over the frame, without the GIL: where the batch of each partition is, and whether it
is an ordinary one in which nothing is wrong. Nothing is read before it is known to be there.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING
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
    void ms_crc_begin()
    uint32_t ms_crc32c(const uint8_t* p, size_t n)

NAME = "compiled"

ms_crc_begin()

# See `wire.repeated` and `records.batch`.
cdef enum:
    CORRELATION_AT = 4
    AFTER_CORRELATION = 8
    COUNT_MAX = 126
    # An index, a length, a byte of records and the count of tags.
    PARTITION_BYTES_MIN = 7
    END_BYTES = 2
    CRC_AT = 17
    CRC_START = 21


cdef struct Place:
    int32_t index
    Py_ssize_t start
    Py_ssize_t stop
    bint is_whole


cdef bint is_whole_batch(const uint8_t* batch, Py_ssize_t size) noexcept nogil:
    return (
        has_ordinary_header(batch, size)
        and ms_crc32c(batch + CRC_START, size - CRC_START) == ms_get32(batch + CRC_AT)
        and are_whole(
            batch + BATCH_HEADER_BYTES,
            size - BATCH_HEADER_BYTES,
            <int32_t> ms_get32(batch + 57),
            <int64_t> ms_get64(batch + 27),
            <int64_t> ms_get64(batch + 35),
        )
    )


cdef int find_places(const uint8_t* frame, Py_ssize_t at, Py_ssize_t end, Place* places) noexcept nogil:
    """How many there are from the count at `at` on; 0 if that is not what is there up to `end`."""
    cdef int i, count = frame[at] - 1
    cdef Py_ssize_t length
    at += 1
    if not 0 < count <= COUNT_MAX:
        return 0
    for i in range(count):
        if at + PARTITION_BYTES_MIN > end:
            return 0
        places[i].index = <int32_t> ms_get32(frame + at)
        at += 4
        length = frame[at]
        # Three bytes are enough for two megabytes.
        if frame[at] >= 0x80:
            if frame[at + 1] >= 0x80:
                if frame[at + 2] >= 0x80:
                    return 0
                length = frame[at] & 0x7F | (frame[at + 1] & 0x7F) << 7 | frame[at + 2] << 14
                at += 2
            else:
                length = frame[at] & 0x7F | frame[at + 1] << 7
                at += 1
        at += 1
        # Without records, longer than what is there, or with tags.
        if length < 2 or at + length > end or frame[at + length - 1]:
            return 0
        places[i].start = at
        places[i].stop = at + length - 1
        at += length
    if at != end:
        return 0
    for i in range(count):
        places[i].is_whole = is_whole_batch(
            frame + places[i].start, places[i].stop - places[i].start
        )
    return count


def batches_of(frame, bytes before):
    """Index, batch and whether nothing is wrong with it, for each partition; None for a frame
    that does not begin with `before`, except for the correlation id."""
    cdef Py_buffer buffer
    cdef Place places[COUNT_MAX]
    cdef int i, count = 0
    cdef Py_ssize_t at = len(before), end
    cdef const uint8_t* data
    cdef const uint8_t* wanted = <const uint8_t*> PyBytes_AS_STRING(before)
    PyObject_GetBuffer(frame, &buffer, PyBUF_SIMPLE)
    data = <const uint8_t*> buffer.buf
    end = buffer.len - END_BYTES
    if (
        AFTER_CORRELATION <= at < end
        and not data[end]
        and not data[end + 1]
        and memcmp(data, wanted, CORRELATION_AT) == 0
        and memcmp(data + AFTER_CORRELATION, wanted + AFTER_CORRELATION, at - AFTER_CORRELATION) == 0
    ):
        with nogil:
            count = find_places(data, at, end, places)
    PyBuffer_Release(&buffer)
    if not count:
        return None
    return [
        (places[i].index, frame[places[i].start : places[i].stop], places[i].is_whole)
        for i in range(count)
    ]
