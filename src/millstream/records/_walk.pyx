# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Checking and searching the records of a batch, compiled. `_walk_pure` is the same in Python.

One pass over the bytes, without the GIL and without an object per record.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint8_t, uint64_t

from millstream.records._record_walk cimport BAD_SIZE, BYTES_LEFT, NONE, Walk, next_record, varint, varlong

NAME = "compiled"

cdef enum:
    KEPT_MAX = 128


def walk_records(
    data,
    Py_ssize_t start,
    Py_ssize_t stop,
    int64_t count,
    int64_t base_timestamp,
    int64_t earliest,
    int64_t latest,
    bint needs_key,
):
    """None where nothing is wrong with `data[start:stop]`, as nearly always. Else

        problem, index, null key indexes, how many, bad times, how many

    `bad times` are (index, timestamp); of both lists only the first are kept.
    """
    cdef Py_buffer buffer
    cdef Walk walk
    cdef const uint8_t* end
    cdef int64_t index = 0, key_length = 0, timestamp
    cdef int64_t null_keys = 0, bad_times = 0
    cdef int64_t[KEPT_MAX] key_indexes
    cdef int64_t[KEPT_MAX] time_indexes
    cdef int64_t[KEPT_MAX] times
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        if not 0 <= start <= stop <= buffer.len:
            raise ValueError("the records are outside of the data")
        walk.at = <const uint8_t*> buffer.buf + start
        end = <const uint8_t*> buffer.buf + stop
        walk.problem = NONE
        with nogil:
            while index < count:
                timestamp = next_record(&walk, end, index, &key_length)
                if walk.problem != NONE:
                    break
                if needs_key and key_length < 0:
                    if null_keys < KEPT_MAX:
                        key_indexes[null_keys] = index
                    null_keys += 1
                # Wraps round like Java's, without being undefined.
                timestamp = <int64_t> (<uint64_t> base_timestamp + <uint64_t> timestamp)
                if timestamp != -1 and (timestamp < earliest or timestamp > latest):
                    if bad_times < KEPT_MAX:
                        time_indexes[bad_times] = index
                        times[bad_times] = timestamp
                    bad_times += 1
                index += 1
            if walk.problem == NONE and walk.at != end:
                walk.problem = BYTES_LEFT
    finally:
        PyBuffer_Release(&buffer)
    if walk.problem == NONE and not null_keys and not bad_times:
        return None
    return (
        walk.problem,
        index,
        [key_indexes[i] for i in range(min(null_keys, KEPT_MAX))],
        null_keys,
        [(time_indexes[i], times[i]) for i in range(min(bad_times, KEPT_MAX))],
        bad_times,
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
