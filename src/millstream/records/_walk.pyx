# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Checking the records of a batch, compiled. `_walk_pure` is the same in Python.

One pass over the bytes, without the GIL and without an object per record. Bytes come from
strangers: nothing is read before it is known to be there, and every sum is made in 64 bits.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

NAME = "compiled"

# The values are those of `walking.Problem`.
cdef enum:
    NONE = 0
    ENDS_EARLY = 1
    BYTES_LEFT = 2
    BAD_NUMBER = 3
    BAD_SIZE = 4
    BAD_HEADERS = 5
    BAD_OFFSET = 6

cdef enum:
    KEPT_MAX = 128


cdef struct Walk:
    const uint8_t* at
    const uint8_t* end
    int problem


cdef inline int32_t varint(Walk* walk) noexcept nogil:
    """A zigzag number of 32 bits, at most five bytes; bits above the 32nd are dropped, as
    Java drops them."""
    cdef uint32_t value = 0
    cdef int shift = 0
    cdef uint8_t byte
    while True:
        if walk.at >= walk.end:
            walk.problem = ENDS_EARLY
            return 0
        byte = walk.at[0]
        walk.at += 1
        value |= <uint32_t> (byte & 0x7F) << shift
        if byte < 0x80:
            return <int32_t> (value >> 1) ^ -<int32_t> (value & 1)
        shift += 7
        if shift > 28:
            walk.problem = BAD_NUMBER
            return 0


cdef inline int64_t varlong(Walk* walk) noexcept nogil:
    cdef uint64_t value = 0
    cdef int shift = 0
    cdef uint8_t byte
    while True:
        if walk.at >= walk.end:
            walk.problem = ENDS_EARLY
            return 0
        byte = walk.at[0]
        walk.at += 1
        value |= <uint64_t> (byte & 0x7F) << shift
        if byte < 0x80:
            return <int64_t> (value >> 1) ^ -<int64_t> (value & 1)
        shift += 7
        if shift > 63:
            walk.problem = BAD_NUMBER
            return 0


cdef inline void skip(Walk* walk, int64_t length) noexcept nogil:
    """A negative length is a null."""
    if length > walk.end - walk.at:
        walk.problem = BAD_SIZE
    elif length > 0:
        walk.at += length


cdef inline void headers(Walk* walk) noexcept nogil:
    cdef int64_t left = varint(walk)
    cdef int64_t length
    # Every header takes two bytes at least.
    if walk.problem == NONE and (left < 0 or left > walk.end - walk.at):
        walk.problem = BAD_HEADERS
    while left > 0 and walk.problem == NONE:
        length = varint(walk)
        if walk.problem == NONE and length < 0:
            walk.problem = BAD_HEADERS
        if walk.problem == NONE:
            skip(walk, length)
        if walk.problem == NONE:
            length = varint(walk)
        if walk.problem == NONE:
            skip(walk, length)
        left -= 1


def walk_records(
    const uint8_t[::1] data,
    int64_t count,
    int64_t base_timestamp,
    int64_t earliest,
    int64_t latest,
    bint needs_key,
):
    """(problem, index, null key indexes, how many, bad times, how many)

    `bad times` are (index, timestamp); of both lists only the first are kept.
    """
    cdef Walk walk
    cdef const uint8_t* stop
    cdef int64_t index = 0, size, key_length, length, timestamp
    cdef int64_t null_keys = 0, bad_times = 0
    cdef int64_t[KEPT_MAX] key_indexes
    cdef int64_t[KEPT_MAX] time_indexes
    cdef int64_t[KEPT_MAX] times
    cdef Py_ssize_t total = data.shape[0]
    walk.at = &data[0] if total else NULL
    stop = walk.at + total
    walk.problem = NONE
    with nogil:
        while index < count:
            walk.end = stop
            size = varint(&walk)
            if walk.problem != NONE:
                break
            if size < 0 or size > stop - walk.at:
                walk.problem = BAD_SIZE
                break
            walk.end = walk.at + size
            if size < 1:
                walk.problem = ENDS_EARLY
                break
            walk.at += 1
            timestamp = varlong(&walk)
            if walk.problem == NONE:
                length = varint(&walk)
                if walk.problem == NONE and length != index:
                    walk.problem = BAD_OFFSET
            if walk.problem == NONE:
                key_length = varint(&walk)
            if walk.problem == NONE:
                skip(&walk, key_length)
            if walk.problem == NONE:
                length = varint(&walk)
            if walk.problem == NONE:
                skip(&walk, length)
            if walk.problem == NONE:
                headers(&walk)
            if walk.problem == NONE and walk.at != walk.end:
                walk.problem = BAD_SIZE
            if walk.problem != NONE:
                break
            if needs_key and key_length < 0:
                if null_keys < KEPT_MAX:
                    key_indexes[null_keys] = index
                null_keys += 1
            # Wraps round like Java's, without being undefined.
            timestamp = <int64_t> (<uint64_t> base_timestamp + <uint64_t> timestamp)
            if timestamp >= 0 and (timestamp < earliest or timestamp > latest):
                if bad_times < KEPT_MAX:
                    time_indexes[bad_times] = index
                    times[bad_times] = timestamp
                bad_times += 1
            index += 1
        if walk.problem == NONE and walk.at != stop:
            walk.problem = BYTES_LEFT
    return (
        walk.problem,
        index,
        [key_indexes[i] for i in range(min(null_keys, KEPT_MAX))],
        null_keys,
        [(time_indexes[i], times[i]) for i in range(min(bad_times, KEPT_MAX))],
        bad_times,
    )
