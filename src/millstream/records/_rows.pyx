# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Rows into records, compiled. `_rows_pure` is the same in Python.

Two passes over the rows of a batch: their sizes, then their bytes into one allocation.
The columns come from a library that has checked them; row numbers are checked here.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

NAME = "compiled"


cdef struct Strings:
    const uint8_t* validity
    const int32_t* ends
    const uint8_t* data
    int64_t first
    # Entries that may be asked for, counted from `first`.
    int64_t count


cdef inline int is_valid(const uint8_t* validity, int64_t index) noexcept nogil:
    return validity == NULL or (validity[index >> 3] >> (index & 7)) & 1


cdef inline int64_t length_of(const Strings* column, int64_t row) noexcept nogil:
    """-1 for null."""
    cdef int64_t index = column.first + row
    if column.ends == NULL or not is_valid(column.validity, index):
        return -1
    return column.ends[index + 1] - column.ends[index]


cdef inline const uint8_t* start_of(const Strings* column, int64_t row) noexcept nogil:
    return column.data + column.ends[column.first + row]


cdef inline uint64_t zigzag(int64_t number) noexcept nogil:
    return (<uint64_t> number << 1) ^ <uint64_t> (number >> 63)


cdef inline int varint_bytes(int64_t number) noexcept nogil:
    cdef uint64_t value = zigzag(number)
    cdef int size = 1
    while value >= 0x80:
        value >>= 7
        size += 1
    return size


cdef inline uint8_t* write_varint(uint8_t* out, int64_t number) noexcept nogil:
    cdef uint64_t value = zigzag(number)
    while value >= 0x80:
        out[0] = <uint8_t> ((value & 0x7F) | 0x80)
        out += 1
        value >>= 7
    out[0] = <uint8_t> value
    return out + 1


cdef inline int64_t string_bytes(int64_t length) noexcept nogil:
    return 1 if length < 0 else varint_bytes(length) + length


cdef inline uint8_t* write_string(
    uint8_t* out, const Strings* column, int64_t row, int64_t length
) noexcept nogil:
    out = write_varint(out, length)
    if length > 0:
        memcpy(out, start_of(column, row), length)
        out += length
    return out


cdef uint32_t murmur2(const uint8_t* data, int64_t length) noexcept nogil:
    cdef uint32_t multiplier = 0x5BD1E995
    cdef uint32_t value = <uint32_t> 0x9747B28C ^ <uint32_t> length
    cdef uint32_t word
    cdef int64_t position = 0
    while length - position >= 4:
        memcpy(&word, data + position, 4)
        word *= multiplier
        word ^= word >> 24
        word *= multiplier
        value *= multiplier
        value ^= word
        position += 4
    if length - position == 3:
        value ^= <uint32_t> data[position + 2] << 16
    if length - position >= 2:
        value ^= <uint32_t> data[position + 1] << 8
    if length - position >= 1:
        value ^= data[position]
        value *= multiplier
    value ^= value >> 13
    value *= multiplier
    return value ^ (value >> 15)


cdef class RowEncoder:
    cdef Strings _keys
    cdef Strings _values
    cdef Strings _names
    cdef Strings _contents
    cdef const uint8_t* _list_validity
    cdef const int32_t* _list_ends
    cdef int64_t _list_first
    cdef int64_t _row_count
    # The buffers' owners, so that the pointers stay good.
    cdef list _views

    def __init__(self, keys, values, headers):
        self._views = []
        self._take_strings(&self._keys, keys)
        self._take_strings(&self._values, values)
        self._row_count = self._values.count
        if keys is not None:
            self._row_count = min(self._row_count, self._keys.count)
        self._list_ends = NULL
        if headers is not None:
            self._take_strings(&self._names, headers.names)
            self._take_strings(&self._contents, headers.values)
            self._list_validity = self._take_bytes(headers.validity)
            self._list_first = headers.first
            self._row_count = min(
                self._row_count,
                self._take_ends(&self._list_ends, headers.ends) - headers.first - 1)
            self._check_lists()

    cdef const uint8_t* _take_bytes(self, data) except? NULL:
        cdef const uint8_t[::1] view
        if data is None or len(data) == 0:
            return NULL
        view = data
        self._views.append(view)
        return &view[0]

    cdef int64_t _take_ends(self, const int32_t** target, ends) except -1:
        cdef const int32_t[::1] view = ends
        self._views.append(view)
        target[0] = &view[0]
        return view.shape[0]

    cdef int _take_strings(self, Strings* target, column) except -1:
        target.validity = NULL
        target.ends = NULL
        target.data = NULL
        target.first = 0
        target.count = 0
        if column is None:
            return 0
        target.validity = self._take_bytes(column.validity)
        target.data = self._take_bytes(column.data)
        target.first = column.first
        target.count = self._take_ends(&target.ends, column.ends) - column.first - 1
        if target.first < 0 or target.count < 0:
            raise ValueError("a column begins behind its end")
        return 0

    cdef int _check_lists(self) except -1:
        cdef int64_t last
        if self._row_count <= 0:
            return 0
        last = self._list_ends[self._list_first + self._row_count]
        if last > self._names.count or last > self._contents.count:
            raise ValueError("more headers than names or values")
        return 0

    def partitions(self, int64_t count, int32_t partition_count):
        """Where Kafka's own partitioner sends the first `count` rows; -1 without a key."""
        cdef bytes found = PyBytes_FromStringAndSize(NULL, count * 4)
        cdef int32_t* out = <int32_t*> PyBytes_AS_STRING(found)
        cdef int64_t row, length
        if count < 0 or count > self._row_count or partition_count <= 0:
            raise ValueError("no such rows or partitions")
        with nogil:
            for row in range(count):
                length = length_of(&self._keys, row)
                if length < 0:
                    out[row] = -1
                else:
                    out[row] = <int32_t> (
                        (murmur2(start_of(&self._keys, row), length) & 0x7FFFFFFF)
                        % <uint32_t> partition_count)
        return found

    cdef int64_t _body_bytes(self, int64_t row, int64_t offset_delta) noexcept nogil:
        cdef int64_t size = 2 + varint_bytes(offset_delta)
        cdef int64_t index, first, last
        size += string_bytes(length_of(&self._keys, row))
        size += string_bytes(length_of(&self._values, row))
        self._headers_of(row, &first, &last)
        size += varint_bytes(last - first)
        for index in range(first, last):
            size += string_bytes(max(0, length_of(&self._names, index)))
            size += string_bytes(length_of(&self._contents, index))
        return size

    cdef void _headers_of(self, int64_t row, int64_t* first, int64_t* last) noexcept nogil:
        cdef int64_t index = self._list_first + row
        first[0] = last[0] = 0
        if self._list_ends != NULL and is_valid(self._list_validity, index):
            first[0] = self._list_ends[index]
            last[0] = self._list_ends[index + 1]

    cdef uint8_t* _write(self, uint8_t* out, int64_t row, int64_t offset_delta) noexcept nogil:
        cdef int64_t index, first, last
        out = write_varint(out, self._body_bytes(row, offset_delta))
        out[0] = 0
        out[1] = 0
        out = write_varint(out + 2, offset_delta)
        out = write_string(out, &self._keys, row, length_of(&self._keys, row))
        out = write_string(out, &self._values, row, length_of(&self._values, row))
        self._headers_of(row, &first, &last)
        out = write_varint(out, last - first)
        for index in range(first, last):
            out = write_string(out, &self._names, index, max(0, length_of(&self._names, index)))
            out = write_string(out, &self._contents, index, length_of(&self._contents, index))
        return out

    def encode(self, const int64_t[::1] rows, int64_t start, int64_t bytes_max):
        """The records of `rows[start:]` that fit `bytes_max`, and behind which they end."""
        cdef int64_t index, size, total = 0, end = start
        cdef bytes encoded
        cdef uint8_t* out
        for index in range(start, rows.shape[0]):
            if rows[index] < 0 or rows[index] >= self._row_count:
                raise ValueError(f"there is no row {rows[index]}")
            size = self._body_bytes(rows[index], index - start)
            size += varint_bytes(size)
            if index > start and total + size > bytes_max:
                break
            total += size
            end = index + 1
        encoded = PyBytes_FromStringAndSize(NULL, total)
        out = <uint8_t*> PyBytes_AS_STRING(encoded)
        with nogil:
            for index in range(start, end):
                out = self._write(out, rows[index], index - start)
        return encoded, end


def grouped(const int64_t[::1] rows, const int32_t[::1] numbers, int32_t group_count):
    """The rows of each group, groups in order and back to back, and how many each has.

    A counting sort: there are far fewer partitions than rows.
    """
    cdef int64_t size = rows.shape[0]
    cdef int64_t index, start = 0
    cdef int32_t number = 0
    cdef int64_t* next_place
    cdef int64_t* out
    cdef bytes ordered
    cdef list counts = []
    if numbers.shape[0] != size or group_count <= 0:
        raise ValueError("a number for each row, and at least one group")
    next_place = <int64_t*> calloc(group_count, sizeof(int64_t))
    if next_place == NULL:
        raise MemoryError("no memory to group rows")
    try:
        for index in range(size):
            number = numbers[index]
            if number < 0 or number >= group_count:
                raise ValueError(f"there is no group {number}")
            next_place[number] += 1
        for number in range(group_count):
            if next_place[number]:
                counts.append((number, next_place[number]))
            start += next_place[number]
            next_place[number] = start - next_place[number]
        ordered = PyBytes_FromStringAndSize(NULL, size * sizeof(int64_t))
        out = <int64_t*> PyBytes_AS_STRING(ordered)
        with nogil:
            for index in range(size):
                number = numbers[index]
                out[next_place[number]] = rows[index]
                next_place[number] += 1
    finally:
        free(next_place)
    return ordered, counts
