# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Checking and searching the records of a batch, compiled. `_walk_pure` is the same in Python.

One pass over the bytes, without the GIL and without an object per record.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp

from millstream.records._record_walk cimport (
    BAD_HEADERS, BAD_OFFSET, BAD_SIZE, BATCH_HEADER_BYTES, BYTES_LEFT, NO_TIMESTAMP, NONE, Walk,
    has_ordinary_header, ms_get32, ms_get64, next_record, skip, varint, varlong,
)

NAME = "compiled"

cdef enum:
    KEPT_MAX = 128
    # A longer number is none: it could exceed 64 bits.
    DIGITS_MAX = 18

cdef int64_t NEVER = 0x7FFFFFFFFFFFFFFF


cdef struct Found:
    int problem
    # The record with the problem, or how many there are.
    int64_t index
    int64_t null_keys
    int64_t bad_times
    int64_t max_timestamp
    int64_t[KEPT_MAX] key_indexes
    int64_t[KEPT_MAX] time_indexes
    int64_t[KEPT_MAX] times


cdef bint are_right(
    Found* found,
    const uint8_t* at,
    const uint8_t* end,
    int64_t count,
    int64_t base_timestamp,
    int64_t max_timestamp,
    int64_t earliest,
    int64_t latest,
    bint needs_key,
) noexcept nogil:
    """Walk over all records. `found` says what is wrong."""
    cdef Walk walk
    cdef int64_t index = 0, key_length = 0, timestamp, largest = NO_TIMESTAMP
    found.null_keys = found.bad_times = 0
    walk.at = at
    walk.problem = NONE
    while index < count:
        timestamp = next_record(&walk, end, index, &key_length)
        if walk.problem != NONE:
            break
        if needs_key and key_length < 0:
            if found.null_keys < KEPT_MAX:
                found.key_indexes[found.null_keys] = index
            found.null_keys += 1
        # Wraps round like Java's, without being undefined.
        timestamp = <int64_t> (<uint64_t> base_timestamp + <uint64_t> timestamp)
        if timestamp != -1 and (timestamp < earliest or timestamp > latest):
            if found.bad_times < KEPT_MAX:
                found.time_indexes[found.bad_times] = index
                found.times[found.bad_times] = timestamp
            found.bad_times += 1
        if timestamp > largest:
            largest = timestamp
        index += 1
    if walk.problem == NONE and walk.at != end:
        walk.problem = BYTES_LEFT
    found.problem = walk.problem
    found.index = index
    found.max_timestamp = largest
    return (
        walk.problem == NONE
        and largest == max_timestamp
        and not found.null_keys
        and not found.bad_times
    )


def is_ordinary(data, int64_t bytes_max, int64_t earliest, int64_t latest, bint needs_key):
    """Is `data` one uncompressed batch, outside of transactions, in which nothing is wrong? Its
    checksum is left to the caller."""
    cdef Py_buffer buffer
    cdef Found found
    cdef const uint8_t* batch
    cdef bint is_right = False
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    batch = <const uint8_t*> buffer.buf
    if buffer.len <= bytes_max and has_ordinary_header(batch, buffer.len):
        with nogil:
            is_right = are_right(
                &found,
                batch + BATCH_HEADER_BYTES,
                batch + buffer.len,
                <int32_t> ms_get32(batch + 57),
                <int64_t> ms_get64(batch + 27),
                <int64_t> ms_get64(batch + 35),
                earliest,
                latest,
                needs_key,
            )
    PyBuffer_Release(&buffer)
    return is_right


def walk_records(
    data,
    Py_ssize_t start,
    Py_ssize_t stop,
    int64_t count,
    int64_t base_timestamp,
    int64_t max_timestamp,
    int64_t earliest,
    int64_t latest,
    bint needs_key,
):
    """None where nothing is wrong with `data[start:stop]`, as nearly always. Else

        problem, index, null key indexes, how many, bad times, how many, largest timestamp

    `bad times` are (index, timestamp); of both lists only the first are kept. The largest timestamp
    is that of the records before `index`, -1 at least.
    """
    cdef Py_buffer buffer
    cdef Found found
    cdef const uint8_t* bytes_
    cdef bint is_right
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        if not 0 <= start <= stop <= buffer.len:
            raise ValueError("the records are outside of the data")
        bytes_ = <const uint8_t*> buffer.buf
        with nogil:
            is_right = are_right(
                &found,
                bytes_ + start,
                bytes_ + stop,
                count,
                base_timestamp,
                max_timestamp,
                earliest,
                latest,
                needs_key,
            )
    finally:
        PyBuffer_Release(&buffer)
    if is_right:
        return None
    return (
        found.problem,
        found.index,
        [found.key_indexes[i] for i in range(min(found.null_keys, KEPT_MAX))],
        found.null_keys,
        [(found.time_indexes[i], found.times[i]) for i in range(min(found.bad_times, KEPT_MAX))],
        found.bad_times,
        found.max_timestamp,
    )


def find_time(
    const uint8_t[::1] data,
    int64_t count,
    int64_t base_timestamp,
    int64_t wanted,
    int64_t delta_min,
):
    """(problem, offset delta, timestamp) of the first record with a timestamp of `wanted` or
    later and an offset delta of `delta_min` or more; the delta is -1 where there is none."""
    cdef Walk walk
    cdef const uint8_t* stop
    cdef const uint8_t* record_end
    cdef int64_t index, size, timestamp = 0, delta = -1
    cdef Py_ssize_t total = data.shape[0]
    walk.at = &data[0] if total else NULL
    stop = walk.at + total
    walk.problem = NONE
    with nogil:
        for index in range(count):
            walk.end = stop
            size = varint(&walk)
            if walk.problem != NONE:
                break
            if size < 1 or size > stop - walk.at:
                walk.problem = BAD_SIZE
                break
            record_end = walk.at + size
            walk.end = record_end
            walk.at += 1
            timestamp = varlong(&walk)
            if walk.problem == NONE:
                delta = varint(&walk)
            if walk.problem != NONE:
                break
            timestamp = <int64_t> (<uint64_t> base_timestamp + <uint64_t> timestamp)
            if timestamp >= wanted and delta >= delta_min:
                break
            delta = -1
            walk.at = record_end
    return walk.problem, delta if walk.problem == NONE else -1, timestamp


cdef struct Name:
    const uint8_t* at
    int64_t length


cdef struct Times:
    int64_t not_before
    int64_t not_after


cdef inline int64_t decimal(const uint8_t* at, int64_t length, int64_t otherwise) noexcept nogil:
    cdef int64_t value = 0, index
    if length < 1 or length > DIGITS_MAX:
        return otherwise
    for index in range(length):
        if at[index] < 48 or at[index] > 57:
            return otherwise
        value = value * 10 + (at[index] - 48)
    return value


cdef inline void read_times(Walk* walk, Name* before, Name* after, Times* found) noexcept nogil:
    """The headers of a record. Of two with the same name the last counts."""
    cdef int64_t left = varint(walk)
    cdef int64_t length, value_length
    cdef const uint8_t* name
    if walk.problem == NONE and (left < 0 or left > walk.end - walk.at):
        walk.problem = BAD_HEADERS
    while left > 0 and walk.problem == NONE:
        length = varint(walk)
        name = walk.at
        if walk.problem == NONE and length < 0:
            walk.problem = BAD_HEADERS
        if walk.problem == NONE:
            skip(walk, length)
        if walk.problem == NONE:
            value_length = varint(walk)
        if walk.problem == NONE:
            skip(walk, value_length)
        if walk.problem != NONE:
            return
        if length == before.length and memcmp(name, before.at, length) == 0:
            found.not_before = decimal(walk.at - max(value_length, 0), value_length, 0)
        elif length == after.length and memcmp(name, after.at, length) == 0:
            found.not_after = decimal(walk.at - max(value_length, 0), value_length, NEVER)
        left -= 1


cdef inline int64_t next_times(
    Walk* walk, const uint8_t* stop, int64_t last_delta, Name* before, Name* after, Times* found
) noexcept nogil:
    """The offset delta of the record that begins here. Compaction leaves gaps between them."""
    cdef int64_t size, delta, length
    cdef int part
    found.not_before = 0
    found.not_after = NEVER
    walk.end = stop
    size = varint(walk)
    if walk.problem == NONE and (size < 1 or size > stop - walk.at):
        walk.problem = BAD_SIZE
    if walk.problem != NONE:
        return 0
    walk.end = walk.at + size
    walk.at += 1
    varlong(walk)
    if walk.problem != NONE:
        return 0
    delta = varint(walk)
    if walk.problem == NONE and delta <= last_delta:
        walk.problem = BAD_OFFSET
    for part in range(2):
        if walk.problem == NONE:
            length = varint(walk)
        if walk.problem == NONE:
            skip(walk, length)
    if walk.problem == NONE:
        read_times(walk, before, after, found)
    if walk.problem == NONE and walk.at != walk.end:
        walk.problem = BAD_SIZE
    return delta


def find_delivery_times(
    const uint8_t[::1] data, int64_t count, const uint8_t[::1] not_before, const uint8_t[::1] not_after
):
    """Of the records with a header of one of the names: offset delta, the time of the first name
    or 0, the time of the second or the largest number, each in 64 bits, one after another. Then
    the latest of both times among all records; 0 and the largest number if none has any.

    Ends at the first record that cannot be read."""
    cdef Walk walk
    cdef Name before, after
    cdef Times times
    cdef const uint8_t* stop
    cdef int64_t* found = NULL
    cdef int64_t* larger
    cdef int64_t index, delta = -1, size = 0, room = 0, due = 0, expired_after = 0
    cdef Py_ssize_t total = data.shape[0]
    cdef bint is_full = False
    before.at, before.length = &not_before[0], not_before.shape[0]
    after.at, after.length = &not_after[0], not_after.shape[0]
    walk.at = &data[0] if total else NULL
    walk.problem = NONE
    stop = walk.at + total
    try:
        with nogil:
            for index in range(count):
                delta = next_times(&walk, stop, delta, &before, &after, &times)
                if walk.problem != NONE:
                    break
                due = max(due, times.not_before)
                expired_after = max(expired_after, times.not_after)
                if times.not_before == 0 and times.not_after == NEVER:
                    continue
                if size == room:
                    room = max(2 * room, 64)
                    larger = <int64_t*> realloc(found, room * 24)
                    if larger == NULL:
                        is_full = True
                        break
                    found = larger
                found[3 * size] = delta
                found[3 * size + 1] = times.not_before
                found[3 * size + 2] = times.not_after
                size += 1
        if is_full:
            raise MemoryError
        packed = (<const char*> found)[: size * 24] if size else b""
    finally:
        free(found)
    return packed, due, expired_after if size else NEVER
