# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Columns as Arrow lays them out: those that are read, and those in the making.

What adds to a column says no when there is no memory, or more than Arrow's 32 bits can count.
"""

from libc.stdint cimport int32_t, uint8_t
from libc.stdlib cimport realloc
from libc.string cimport memcpy

from millstream.lines._text cimport Span

cdef enum:
    ARROW_BYTES_MAX = 0x7FFFFFFF


cdef struct Buffer:
    uint8_t* data
    size_t size
    size_t room


cdef inline bint reserve(Buffer* buffer, size_t more) noexcept nogil:
    """Room for `more` bytes; no when there is no memory."""
    cdef size_t room
    cdef uint8_t* data
    if buffer.size + more <= buffer.room:
        return True
    room = buffer.room * 2 if buffer.room else 4096
    while room < buffer.size + more:
        room *= 2
    data = <uint8_t*> realloc(buffer.data, room)
    if data == NULL:
        return False
    buffer.data = data
    buffer.room = room
    return True


cdef inline bint append(Buffer* buffer, const void* data, size_t size) noexcept nogil:
    if not reserve(buffer, size):
        return False
    memcpy(buffer.data + buffer.size, data, size)
    buffer.size += size
    return True


cdef inline bint append_int32(Buffer* buffer, int32_t number) noexcept nogil:
    return append(buffer, &number, 4)


# Columns in the making.
cdef struct Texts:
    Buffer validity
    Buffer ends
    Buffer data


cdef struct Numbers:
    Buffer validity
    Buffer data


cdef inline bint set_bit(Buffer* validity, size_t row, bint is_there) noexcept nogil:
    if row % 8 == 0:
        if not reserve(validity, 1):
            return False
        validity.data[row // 8] = 0
        validity.size = row // 8 + 1
    if is_there:
        validity.data[row // 8] |= <uint8_t> (1 << (row % 8))
    return True


cdef inline bint add_text(Texts* column, size_t row, Span text) noexcept nogil:
    """A text, or null where its size is below 0."""
    if text.size > 0 and not append(&column.data, text.at, text.size):
        return False
    return (
        set_bit(&column.validity, row, text.size >= 0)
        and column.data.size <= ARROW_BYTES_MAX
        and append_int32(&column.ends, <int32_t> column.data.size)
    )


cdef inline bint add_number(
    Numbers* column, size_t row, bint is_there, const void* number, size_t size
) noexcept nogil:
    return set_bit(&column.validity, row, is_there) and append(&column.data, number, size)


# An Arrow column of bytes or text that is there.
cdef struct Input:
    const uint8_t* validity
    const int32_t* ends
    const uint8_t* data
    Py_ssize_t offset
    Py_ssize_t data_size


cdef inline bint is_set(const uint8_t* validity, Py_ssize_t place) noexcept nogil:
    return validity == NULL or validity[place // 8] >> (place % 8) & 1


cdef inline bint value_at(Input* column, Py_ssize_t row, Span* value) noexcept nogil:
    """No where the column is not as Arrow says."""
    cdef Py_ssize_t place = column.offset + row
    cdef int32_t start = column.ends[place], end = column.ends[place + 1]
    value.at = column.data
    value.size = -1
    if not is_set(column.validity, place):
        return True
    if start < 0 or end < start or end > column.data_size:
        return False
    value.at = column.data + start
    value.size = end - start
    return True
