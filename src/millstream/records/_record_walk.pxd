"""A batch and one record after another, checked without Python and without the GIL.

For `_walk`, which reports what is wrong, and for the broker's receiver, which only wants to
know whether anything is. Bytes come from strangers: nothing is read before it is known to be
there, and every sum is made in 64 bits.
"""

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef extern from "_native.h" nogil:
    const uint8_t* ms_another(const uint8_t* p)
    uint32_t ms_get32(const uint8_t* p)
    uint64_t ms_get64(const uint8_t* p)

# The header of a batch, see `records.batch`.
cdef enum:
    BATCH_HEADER_BYTES = 61
    LENGTH_FIELD_END = 12
    MAGIC = 2
    # What a record has that was not given a timestamp.
    NO_TIMESTAMP = -1

# The values are those of `walking.Problem`.
cdef enum:
    NONE = 0
    ENDS_EARLY = 1
    BYTES_LEFT = 2
    BAD_NUMBER = 3
    BAD_SIZE = 4
    BAD_HEADERS = 5
    BAD_OFFSET = 6

cdef struct Walk:
    const uint8_t* at
    const uint8_t* end
    int problem


cdef inline int has_ordinary_header(const uint8_t* batch, size_t size) noexcept nogil:
    """Are these bytes one batch as clients make it: uncompressed, outside of transactions, with
    offsets and sequence numbers that fit? Says nothing of its checksum and its records."""
    cdef int32_t count
    if size < BATCH_HEADER_BYTES or batch[16] != MAGIC or ms_get64(batch) != 0:
        return 0
    if <int64_t> <int32_t> ms_get32(batch + 8) + LENGTH_FIELD_END != <int64_t> size:
        return 0
    if batch[21] or batch[22]:
        return 0
    count = <int32_t> ms_get32(batch + 57)
    if count <= 0 or <int32_t> ms_get32(batch + 23) != count - 1:
        return 0
    if <int64_t> ms_get64(batch + 43) < 0:
        return 1
    # A producer with an id: its epoch and its sequence number.
    return <int8_t> batch[51] >= 0 and <int8_t> batch[53] >= 0


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
    """-1 is a null; of other negative lengths Java makes a null, and librdkafka an error."""
    if length > walk.end - walk.at or length < -1:
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


cdef inline int64_t next_record(Walk* walk, const uint8_t* stop, int64_t index, int64_t* key_length) noexcept nogil:
    """The timestamp delta of the record that begins here; `walk.problem` says what is wrong."""
    cdef int64_t size, length, delta
    walk.end = stop
    size = varint(walk)
    if walk.problem != NONE:
        return 0
    if size < 0 or size > stop - walk.at:
        walk.problem = BAD_SIZE
        return 0
    walk.end = walk.at + size
    if size < 1:
        walk.problem = ENDS_EARLY
        return 0
    walk.at += 1
    delta = varlong(walk)
    if walk.problem == NONE:
        length = varint(walk)
        if walk.problem == NONE and length != index:
            walk.problem = BAD_OFFSET
    if walk.problem == NONE:
        key_length[0] = varint(walk)
    if walk.problem == NONE:
        skip(walk, key_length[0])
    if walk.problem == NONE:
        length = varint(walk)
    if walk.problem == NONE:
        skip(walk, length)
    if walk.problem == NONE:
        headers(walk)
    if walk.problem == NONE and walk.at != walk.end:
        walk.problem = BAD_SIZE
    # The same place, but known as soon as the size was read: the processor begins with the next
    # record while it is still busy with the numbers of this one.
    walk.at = ms_another(walk.end)
    return delta


cdef inline int are_whole(
    const uint8_t* data, size_t size, int64_t count, int64_t base_timestamp, int64_t max_timestamp
) noexcept nogil:
    """Are these exactly `count` records that everybody can read, none with an odd timestamp, and
    the newest as new as their batch says?"""
    cdef Walk walk
    cdef int64_t index, timestamp, largest = NO_TIMESTAMP, key_length = 0
    walk.at = data
    walk.problem = NONE
    for index in range(count):
        timestamp = next_record(&walk, data + size, index, &key_length)
        if walk.problem != NONE:
            return 0
        # Wraps round like Java's, without being undefined.
        timestamp = <int64_t> (<uint64_t> base_timestamp + <uint64_t> timestamp)
        if timestamp < NO_TIMESTAMP:
            return 0
        if timestamp > largest:
            largest = timestamp
    return walk.at == data + size and largest == max_timestamp
