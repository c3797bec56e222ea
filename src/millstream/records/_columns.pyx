# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The loops over records, compiled. `_columns_pure` is the same in Python.

Three users of one record reader: `ColumnsBuilder` lays records out as Arrow wants them,
`KeyMap` remembers the newest offset of each key, `Rewriter` drops the records that a
`KeyMap` says are superseded. The two for compaction take many plain batches in
one call without the GIL, so that a thread can work beside the event loop; batches that
need a decision or a codec stop them, and the caller does those one by one.

Keys are held as SipHash-2-4 with 128 bits under a random key: nobody who does not know
the key can make two keys meet, and by chance 2^32 keys meet with odds of 1 in 2^65.

Bytes come from files and from strangers: nothing is read before it is known to be there.
"""

import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset

cdef extern from *:
    """
    #include "_native.h"
    static int ms_add_overflows(int64_t a, int64_t b, int64_t *sum) {
        return __builtin_add_overflow(a, b, sum);
    }
    /* A hash as a number below `count`, without a division. */
    static size_t ms_below(uint64_t hash, size_t count) {
        return (size_t)(((unsigned __int128)hash * count) >> 64);
    }
    static void ms_prefetch(const void *p) { __builtin_prefetch(p, 1); }

    #define MS_ROTL(x, b) (uint64_t)(((x) << (b)) | ((x) >> (64 - (b))))
    #define MS_ROUND \\
        v0 += v1; v1 = MS_ROTL(v1, 13); v1 ^= v0; v0 = MS_ROTL(v0, 32); \\
        v2 += v3; v3 = MS_ROTL(v3, 16); v3 ^= v2; \\
        v0 += v3; v3 = MS_ROTL(v3, 21); v3 ^= v0; \\
        v2 += v1; v1 = MS_ROTL(v1, 17); v1 ^= v2; v2 = MS_ROTL(v2, 32);

    static void ms_siphash(const uint8_t *p, size_t n, uint64_t k0, uint64_t k1,
                           uint64_t *h0, uint64_t *h1) {
        uint64_t v0 = 0x736f6d6570736575ull ^ k0, v1 = 0x646f72616e646f6dull ^ k1;
        uint64_t v2 = 0x6c7967656e657261ull ^ k0, v3 = 0x7465646279746573ull ^ k1;
        uint64_t last = (uint64_t)n << 56, word;
        v1 ^= 0xee;
        while (n >= 8) {
            memcpy(&word, p, 8);
            v3 ^= word; MS_ROUND MS_ROUND v0 ^= word;
            p += 8; n -= 8;
        }
        for (size_t i = 0; i < n; i++) last |= (uint64_t)p[i] << (8 * i);
        v3 ^= last; MS_ROUND MS_ROUND v0 ^= last;
        v2 ^= 0xee; MS_ROUND MS_ROUND MS_ROUND MS_ROUND
        *h0 = v0 ^ v1 ^ v2 ^ v3;
        v1 ^= 0xdd; MS_ROUND MS_ROUND MS_ROUND MS_ROUND
        *h1 = v0 ^ v1 ^ v2 ^ v3;
    }
    """
    void ms_crc_begin() noexcept nogil
    uint32_t ms_crc32c(const uint8_t* p, size_t n) noexcept nogil
    uint32_t ms_crc32c_soft(const uint8_t* p, size_t n) noexcept nogil
    uint64_t ms_get64(const uint8_t* p) noexcept nogil
    uint32_t ms_get32(const uint8_t* p) noexcept nogil
    void ms_put64(uint8_t* p, uint64_t v) noexcept nogil
    void ms_put32(uint8_t* p, uint32_t v) noexcept nogil
    int ms_add_overflows(int64_t a, int64_t b, int64_t* sum) noexcept nogil
    size_t ms_below(uint64_t hash, size_t count) noexcept nogil
    void ms_prefetch(const void* p) noexcept nogil
    void ms_siphash(const uint8_t* p, size_t n, uint64_t k0, uint64_t k1,
                    uint64_t* h0, uint64_t* h1) noexcept nogil

ms_crc_begin()

NAME = "compiled"
ENTRY_BYTES = 24

# Why a loop over batches stopped; the values are those of `columns.Stop`.
cdef enum:
    STOP_END = 0
    STOP_SPECIAL = 1
    STOP_FULL = 2
    STOP_DAMAGED = 3

cdef enum:
    HEADER_BYTES = 61
    CRC_START = 21
    MAGIC = 2
    CODEC_MASK = 0x07
    APPEND_TIME_MASK = 0x08
    TRANSACTIONAL_MASK = 0x10
    CONTROL_MASK = 0x20
    HORIZON_MASK = 0x40
    RECORD_BYTES_MIN = 7
    # Hashed together, so that their slots are on the way from memory at the same time.
    KEYS_AT_ONCE = 64

cdef extern from "<stdint.h>":
    const int64_t INT64_MIN
    const int64_t INT64_MAX


cdef struct Part:
    const uint8_t* start
    # Behind the offset delta: key, value, headers.
    const uint8_t* rest
    const uint8_t* end
    const uint8_t* key
    int64_t key_length
    const uint8_t* value
    int64_t value_length
    # Behind the value.
    const uint8_t* headers
    int64_t timestamp_delta
    int64_t offset_delta
    uint64_t hash0
    uint64_t hash1
    int is_kept


cdef struct Buffer:
    uint8_t* data
    size_t size
    size_t room


cdef int reserve(Buffer* buffer, size_t more) noexcept nogil:
    """Room for `more` bytes; 0 when there is no memory."""
    cdef size_t room
    cdef uint8_t* data
    if buffer.size + more <= buffer.room:
        return 1
    room = buffer.room * 2 if buffer.room else 4096
    while room < buffer.size + more:
        room *= 2
    data = <uint8_t*> realloc(buffer.data, room)
    if data == NULL:
        return 0
    buffer.data = data
    buffer.room = room
    return 1


cdef int append(Buffer* buffer, const void* data, size_t size) noexcept nogil:
    if not reserve(buffer, size):
        return 0
    # Of nothing, neither pointer may exist.
    if size:
        memcpy(buffer.data + buffer.size, data, size)
    buffer.size += size
    return 1


cdef int append_int32(Buffer* buffer, int32_t number) noexcept nogil:
    return append(buffer, &number, 4)


cdef int append_int64(Buffer* buffer, int64_t number) noexcept nogil:
    return append(buffer, &number, 8)


# The three below write into room that was reserved before.

cdef inline void put_int32(Buffer* buffer, int32_t number) noexcept nogil:
    memcpy(buffer.data + buffer.size, &number, 4)
    buffer.size += 4


cdef inline void put_int64(Buffer* buffer, int64_t number) noexcept nogil:
    memcpy(buffer.data + buffer.size, &number, 8)
    buffer.size += 8


cdef inline void put_field(Buffer* validity, Buffer* ends, Buffer* data, size_t index,
                           const uint8_t* field, int64_t length) noexcept nogil:
    """A byte string, or null for a length below 0, as entry `index` of its column."""
    if index % 8 == 0:
        validity.data[validity.size] = 0
        validity.size += 1
    if length >= 0:
        validity.data[index // 8] |= <uint8_t> (1 << (index % 8))
        if length > 0:
            memcpy(data.data + data.size, field, length)
            data.size += length
    put_int32(ends, <int32_t> data.size)


cdef inline void cut_column(Buffer* validity, Buffer* ends, Buffer* data,
                            size_t count) noexcept nogil:
    """Take all entries from `count` on out of a column; `validity` may be NULL."""
    if validity != NULL:
        validity.size = (count + 7) // 8
        if count % 8:
            validity.data[validity.size - 1] &= <uint8_t> ((1 << (count % 8)) - 1)
    ends.size = (count + 1) * 4
    data.size = (<int32_t*> ends.data)[count]


cdef bytes taken(Buffer* buffer):
    cdef bytes data = PyBytes_FromStringAndSize(<const char*> buffer.data, buffer.size)
    buffer.size = 0
    return data


cdef inline const uint8_t* read_varint(
    const uint8_t* p, const uint8_t* end, int bytes_max, int64_t* number
) noexcept nogil:
    """Behind the zigzag number at `p`; NULL when there is none."""
    cdef uint64_t value = 0
    cdef int index
    cdef uint8_t byte
    for index in range(bytes_max):
        if p >= end:
            return NULL
        byte = p[0]
        p += 1
        if index == 9 and byte > 1:
            return NULL
        value |= <uint64_t> (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            number[0] = <int64_t> ((value >> 1) ^ (~(value & 1) + 1))
            return p
    return NULL


cdef inline size_t write_varint(uint8_t* p, int64_t number) noexcept nogil:
    cdef uint64_t value = (<uint64_t> number << 1) ^ <uint64_t> (number >> 63)
    cdef size_t size = 0
    while value >= 0x80:
        p[size] = <uint8_t> (value & 0x7F) | 0x80
        value >>= 7
        size += 1
    p[size] = <uint8_t> value
    return size + 1


cdef inline const uint8_t* read_field(
    const uint8_t* p, const uint8_t* end, const uint8_t** data, int64_t* length
) noexcept nogil:
    p = read_varint(p, end, 5, length)
    if p == NULL or length[0] < -1 or length[0] > end - p:
        return NULL
    data[0] = p
    return p if length[0] < 0 else p + length[0]


cdef const uint8_t* read_part(
    const uint8_t* p, const uint8_t* end, Part* part
) noexcept nogil:
    """The record at `p`, up to its headers; NULL when the bytes do not add up."""
    cdef int64_t length
    part.start = p
    p = read_varint(p, end, 5, &length)
    if p == NULL or length < RECORD_BYTES_MIN - 1 or length > end - p:
        return NULL
    part.end = p + length
    p = read_varint(p + 1, part.end, 10, &part.timestamp_delta)
    if p == NULL:
        return NULL
    p = read_varint(p, part.end, 5, &part.offset_delta)
    if p == NULL:
        return NULL
    part.rest = p
    p = read_field(p, part.end, &part.key, &part.key_length)
    if p == NULL:
        return NULL
    p = read_field(p, part.end, &part.value, &part.value_length)
    part.headers = p
    return NULL if p == NULL else part.end


cdef struct Header:
    int64_t base_offset
    int64_t size
    int16_t attributes
    int32_t last_delta
    int64_t base_timestamp
    int64_t max_timestamp
    int32_t count


cdef void read_header(const uint8_t* p, Header* header) noexcept nogil:
    header.base_offset = <int64_t> ms_get64(p)
    header.size = <int64_t> <int32_t> ms_get32(p + 8) + 12
    header.attributes = <int16_t> ((p[21] << 8) | p[22])
    header.last_delta = <int32_t> ms_get32(p + 23)
    header.base_timestamp = <int64_t> ms_get64(p + 27)
    header.max_timestamp = <int64_t> ms_get64(p + 35)
    header.count = <int32_t> ms_get32(p + 57)


cdef struct Slot:
    uint64_t hash0
    uint64_t hash1
    # The offset and one: zero is an empty slot.
    int64_t offset


cdef class KeyMap:
    """The newest offset of each key, for at most `capacity` keys."""

    cdef Slot* _slots
    cdef size_t _slot_count
    cdef uint64_t _secret0
    cdef uint64_t _secret1
    cdef readonly int64_t capacity
    cdef readonly int64_t count
    cdef public int64_t latest_offset

    def __cinit__(self, int64_t capacity, double load_factor=0.9, secret=None):
        cdef bytes key = os.urandom(16) if secret is None else secret
        memcpy(&self._secret0, PyBytes_AS_STRING(key), 8)
        memcpy(&self._secret1, PyBytes_AS_STRING(key) + 8, 8)
        self.capacity = capacity
        self.count = 0
        self.latest_offset = -1
        # Always an empty slot, so that a search ends.
        self._slot_count = <size_t> (capacity / load_factor) + 2
        self._slots = <Slot*> calloc(self._slot_count, sizeof(Slot))
        if self._slots == NULL:
            raise MemoryError(f"no memory for {capacity} keys")

    def __dealloc__(self):
        free(self._slots)

    def hash_of(self, bytes key not None):
        cdef uint64_t hash0, hash1
        ms_siphash(<const uint8_t*> PyBytes_AS_STRING(key), len(key), self._secret0,
                   self._secret1, &hash0, &hash1)
        return hash0.to_bytes(8, "little") + hash1.to_bytes(8, "little")

    def offset_of(self, bytes key not None):
        """The newest offset of a key; -1 when it is not known."""
        cdef Part part
        part.key = <const uint8_t*> PyBytes_AS_STRING(key)
        part.key_length = len(key)
        self._hash(&part)
        return self._find(&part).offset - 1

    cdef void _hash(self, Part* part) noexcept nogil:
        ms_siphash(part.key, part.key_length, self._secret0, self._secret1,
                   &part.hash0, &part.hash1)
        ms_prefetch(&self._slots[ms_below(part.hash0, self._slot_count)])

    cdef Slot* _find(self, Part* part) noexcept nogil:
        cdef size_t number = ms_below(part.hash0, self._slot_count)
        cdef Slot* slot
        while True:
            slot = &self._slots[number]
            if slot.offset == 0 or (slot.hash0 == part.hash0 and slot.hash1 == part.hash1):
                return slot
            number += 1
            if number == self._slot_count:
                number = 0

    cdef int _put(self, Part* part, int64_t offset) noexcept nogil:
        cdef Slot* slot = self._find(part)
        if slot.offset == 0:
            if self.count >= self.capacity:
                return 0
            slot.hash0 = part.hash0
            slot.hash1 = part.hash1
            self.count += 1
        if offset + 1 > slot.offset:
            slot.offset = offset + 1
        return 1

    cdef int _add(self, const uint8_t* p, const uint8_t* end, int64_t base_offset,
                  int64_t last_delta, int64_t count, int64_t from_offset) noexcept nogil:
        """All keys of one batch; STOP_END when they are in."""
        cdef Part parts[KEYS_AT_ONCE]
        cdef int held, index
        cdef int64_t done = 0, previous = -1
        while done < count:
            held = 0
            while held < KEYS_AT_ONCE and done < count:
                p = read_part(p, end, &parts[held])
                if (p == NULL or parts[held].offset_delta <= previous
                        or parts[held].offset_delta > last_delta):
                    return STOP_DAMAGED
                previous = parts[held].offset_delta
                done += 1
                if parts[held].key_length >= 0 and base_offset + previous >= from_offset:
                    self._hash(&parts[held])
                    held += 1
            for index in range(held):
                if not self._put(&parts[index], base_offset + parts[index].offset_delta):
                    # Everything before this record is in.
                    self.latest_offset = base_offset + parts[index].offset_delta - 1
                    return STOP_FULL
        return STOP_END if p == end else STOP_DAMAGED

    cdef int _add_batches(self, const uint8_t* data, size_t* position, size_t end,
                          int64_t from_offset) noexcept nogil:
        cdef Header header
        cdef const uint8_t* p
        cdef int stop
        while end - position[0] >= HEADER_BYTES:
            p = data + position[0]
            read_header(p, &header)
            if p[16] != MAGIC or header.size < HEADER_BYTES or header.last_delta < 0:
                return STOP_DAMAGED
            if header.size > <int64_t> (end - position[0]):
                return STOP_END
            if header.attributes & (CODEC_MASK | TRANSACTIONAL_MASK | CONTROL_MASK):
                return STOP_SPECIAL
            if header.base_offset + header.last_delta >= from_offset:
                stop = self._add(p + HEADER_BYTES, p + header.size, header.base_offset,
                                 header.last_delta, header.count, from_offset)
                if stop != STOP_END:
                    return stop
                self.latest_offset = header.base_offset + header.last_delta
            position[0] += header.size
        return STOP_END

    def add_batches(self, const uint8_t[::1] data, Py_ssize_t position, int64_t from_offset):
        """Take in plain batches from `position` on: where it stopped, and why."""
        cdef size_t at = position
        cdef int stop
        if position < 0 or data.shape[0] <= position:
            return position, STOP_END
        with nogil:
            stop = self._add_batches(&data[0], &at, data.shape[0], from_offset)
        return at, stop

    def add_records(self, const uint8_t[::1] records, int64_t base_offset, int64_t last_delta,
                    int64_t count, int64_t from_offset):
        """Take in the records of one batch, unpacked: STOP_END when they are in."""
        cdef int stop
        cdef const uint8_t* p = NULL
        if records.shape[0] == 0:
            return STOP_END if count == 0 else STOP_DAMAGED
        p = &records[0]
        with nogil:
            stop = self._add(p, p + records.shape[0], base_offset, last_delta, count, from_offset)
        if stop == STOP_END:
            self.latest_offset = base_offset + last_delta
        return stop


cdef class Rewriter:
    """Batches without the records that `keys` knows newer ones of.

    What is written gathers in a buffer for `take_bytes`; `take_marks` has, for about every
    `interval_bytes`, four numbers: the position of a batch, its last offset, the largest
    timestamp up to there and the offset that has it. That is what indexes are made of.
    """

    cdef KeyMap _keys
    cdef int64_t* _kept_offsets
    cdef size_t _kept_count
    cdef int64_t _now_ms
    cdef int64_t _horizon_ms
    cdef int64_t _interval_bytes
    cdef Buffer _out
    cdef Buffer _marks
    cdef Part* _parts
    cdef size_t _parts_room
    cdef int64_t _bytes_since_mark
    cdef readonly int64_t position
    cdef readonly int64_t max_timestamp_ms
    cdef readonly int64_t max_timestamp_offset
    cdef readonly int64_t records_read
    cdef readonly int64_t records_kept
    cdef readonly int64_t batches_kept

    def __cinit__(self, KeyMap keys not None, kept_offsets, int64_t now_ms,
                  int64_t delete_retention_ms, int64_t interval_bytes):
        cdef size_t index
        self._keys = keys
        self._now_ms = now_ms
        # Any number that an option may have: a sum beyond the largest one would be in the past.
        self._horizon_ms = now_ms + min(delete_retention_ms, INT64_MAX - now_ms)
        self._interval_bytes = interval_bytes
        self.max_timestamp_ms = -1
        self.max_timestamp_offset = -1
        offsets = sorted(kept_offsets)
        self._kept_count = len(offsets)
        self._kept_offsets = <int64_t*> malloc(8 * (self._kept_count + 1))
        if self._kept_offsets == NULL:
            raise MemoryError("no memory for producers")
        for index in range(self._kept_count):
            self._kept_offsets[index] = offsets[index]

    def __dealloc__(self):
        free(self._kept_offsets)
        free(self._out.data)
        free(self._marks.data)
        free(self._parts)

    cdef int _is_kept_empty(self, int64_t last_offset) noexcept nogil:
        cdef size_t low = 0, high = self._kept_count, middle
        while low < high:
            middle = (low + high) // 2
            if self._kept_offsets[middle] < last_offset:
                low = middle + 1
            else:
                high = middle
        return low < self._kept_count and self._kept_offsets[low] == last_offset

    cdef int _note(self, const uint8_t* p, int64_t size) noexcept nogil:
        """A batch that is now the end of the output."""
        cdef Header header
        cdef int64_t last_offset
        read_header(p, &header)
        last_offset = header.base_offset + header.last_delta
        if header.max_timestamp > self.max_timestamp_ms:
            self.max_timestamp_ms = header.max_timestamp
            self.max_timestamp_offset = last_offset
        if self._bytes_since_mark > self._interval_bytes:
            if not (append_int64(&self._marks, self.position)
                    and append_int64(&self._marks, last_offset)
                    and append_int64(&self._marks, self.max_timestamp_ms)
                    and append_int64(&self._marks, self.max_timestamp_offset)):
                return 0
            self._bytes_since_mark = 0
        self._bytes_since_mark += size
        self.position += size
        self.batches_kept += 1
        return 1

    cdef int _parse(self, const uint8_t* p, const uint8_t* end, Header* header) noexcept nogil:
        """All records of a batch into `_parts`; STOP_DAMAGED when they do not add up."""
        cdef int64_t index, previous = -1
        cdef Part* parts
        if header.count < 0 or <int64_t> header.count * RECORD_BYTES_MIN > end - p:
            return STOP_DAMAGED
        if <size_t> header.count > self._parts_room:
            parts = <Part*> realloc(self._parts, <size_t> header.count * sizeof(Part))
            if parts == NULL:
                return STOP_FULL
            self._parts = parts
            self._parts_room = header.count
        for index in range(header.count):
            p = read_part(p, end, &self._parts[index])
            if (p == NULL or self._parts[index].offset_delta <= previous
                    or self._parts[index].offset_delta > header.last_delta):
                return STOP_DAMAGED
            previous = self._parts[index].offset_delta
        return STOP_END if p == end else STOP_DAMAGED

    cdef int64_t _choose(self, Header* header) noexcept nogil:
        """Mark the records to keep; how many."""
        cdef int64_t index, first = 0, upto, kept = 0, offset
        cdef int is_deleting = header.attributes & HORIZON_MASK and (
            self._now_ms >= header.base_timestamp)
        cdef Part* part
        while first < header.count:
            upto = min(first + KEYS_AT_ONCE, <int64_t> header.count)
            for index in range(first, upto):
                part = &self._parts[index]
                if part.key_length >= 0:
                    self._keys._hash(part)
            for index in range(first, upto):
                part = &self._parts[index]
                offset = header.base_offset + part.offset_delta
                if offset > self._keys.latest_offset:
                    part.is_kept = 1
                elif part.key_length < 0:
                    part.is_kept = 0
                else:
                    part.is_kept = (offset + 1 >= self._keys._find(part).offset
                                    and (part.value_length >= 0 or not is_deleting))
                kept += part.is_kept
            first = upto
        return kept

    cdef int _write_records(self, Buffer* out, Header* header, int64_t shift,
                            int64_t* max_timestamp) noexcept nogil:
        """The kept records, their timestamps counted from `shift` earlier; 0 on no memory."""
        cdef int64_t index, delta
        cdef Part* part
        cdef uint8_t head[32]
        cdef size_t size, length_size
        cdef uint8_t length[8]
        max_timestamp[0] = INT64_MIN
        for index in range(header.count):
            part = &self._parts[index]
            if not part.is_kept:
                continue
            max_timestamp[0] = max(
                max_timestamp[0],
                <int64_t> (<uint64_t> header.base_timestamp + <uint64_t> part.timestamp_delta))
            if shift == 0:
                if not append(out, part.start, part.end - part.start):
                    return 0
                continue
            delta = <int64_t> (<uint64_t> part.timestamp_delta + <uint64_t> shift)
            head[0] = 0
            size = 1 + write_varint(head + 1, delta)
            size += write_varint(head + size, part.offset_delta)
            length_size = write_varint(length, <int64_t> size + (part.end - part.rest))
            if not (append(out, length, length_size) and append(out, head, size)
                    and append(out, part.rest, part.end - part.rest)):
                return 0
        return 1

    cdef int _has_tombstone(self, Header* header) noexcept nogil:
        cdef int64_t index
        for index in range(header.count):
            if self._parts[index].is_kept and self._parts[index].value_length < 0:
                return 1
        return 0

    cdef int _rewrite_batch(self, const uint8_t* p, Header* header, int is_last) noexcept nogil:
        """One plain batch, whole and with a good checksum; STOP_END when that is done."""
        cdef int64_t kept, shift = 0, max_timestamp = 0
        cdef int stop, is_horizon_due
        cdef size_t start = self._out.size
        cdef uint8_t* out
        stop = self._parse(p + HEADER_BYTES, p + header.size, header)
        if stop != STOP_END:
            return stop
        kept = self._choose(header)
        self.records_read += header.count
        self.records_kept += kept
        if kept == 0:
            if is_last or self._is_kept_empty(header.base_offset + header.last_delta):
                return self._write_empty(p, header)
            return STOP_END
        is_horizon_due = not (header.attributes & HORIZON_MASK) and self._has_tombstone(header)
        if kept == header.count and not is_horizon_due:
            if not append(&self._out, p, header.size):
                return STOP_FULL
            return STOP_END if self._note(p, header.size) else STOP_FULL
        if not append(&self._out, p, HEADER_BYTES):
            return STOP_FULL
        if is_horizon_due:
            shift = <int64_t> (<uint64_t> header.base_timestamp - <uint64_t> self._horizon_ms)
        if not self._write_records(&self._out, header, shift, &max_timestamp):
            return STOP_FULL
        out = self._out.data + start
        if is_horizon_due:
            ms_put64(out + 27, <uint64_t> self._horizon_ms)
            out[22] |= HORIZON_MASK
        if not header.attributes & APPEND_TIME_MASK:
            ms_put64(out + 35, <uint64_t> max_timestamp)
        ms_put32(out + 57, <uint32_t> kept)
        return self._seal(start)

    cdef int _write_empty(self, const uint8_t* p, Header* header) noexcept nogil:
        """Only the header: offsets, producer and sequence, no records."""
        cdef size_t start = self._out.size
        cdef uint8_t* out
        if not append(&self._out, p, HEADER_BYTES):
            return STOP_FULL
        out = self._out.data + start
        out[22] &= ~(CODEC_MASK | HORIZON_MASK)
        ms_put64(out + 27, <uint64_t> <int64_t> -1)
        ms_put32(out + 57, 0)
        return self._seal(start)

    cdef int _seal(self, size_t start) noexcept nogil:
        """Length and checksum of the batch that the output ends with."""
        cdef uint8_t* out = self._out.data + start
        cdef size_t size = self._out.size - start
        ms_put32(out + 8, <uint32_t> (size - 12))
        ms_put32(out + 17, ms_crc32c(out + CRC_START, size - CRC_START))
        return STOP_END if self._note(out, size) else STOP_FULL

    cdef int _rewrite_batches(self, const uint8_t* data, size_t* position, size_t end,
                              int is_end) noexcept nogil:
        cdef Header header
        cdef const uint8_t* p
        cdef int stop
        while end - position[0] >= HEADER_BYTES:
            p = data + position[0]
            read_header(p, &header)
            if p[16] != MAGIC or header.size < HEADER_BYTES or header.last_delta < 0:
                return STOP_DAMAGED
            if header.size > <int64_t> (end - position[0]):
                return STOP_END
            if ms_crc32c(p + CRC_START, header.size - CRC_START) != ms_get32(p + 17):
                return STOP_DAMAGED
            if header.attributes & (CODEC_MASK | TRANSACTIONAL_MASK | CONTROL_MASK):
                return STOP_SPECIAL
            stop = self._rewrite_batch(
                p, &header, is_end and position[0] + <size_t> header.size == end)
            if stop != STOP_END:
                return stop
            position[0] += header.size
        return STOP_END

    def rewrite_batches(self, const uint8_t[::1] data, Py_ssize_t position, bint is_end):
        """Rewrite plain batches from `position` on: where it stopped, and why.

        With `is_end`, the batch that ends with `data` is kept even if it gets empty.
        """
        cdef size_t at = position
        cdef int stop
        if position < 0 or data.shape[0] <= position:
            return position, STOP_END
        with nogil:
            stop = self._rewrite_batches(&data[0], &at, data.shape[0], is_end)
        if stop == STOP_FULL:
            raise MemoryError("no memory to rewrite a batch")
        return at, stop

    def filter_records(self, const uint8_t[::1] header_bytes, const uint8_t[::1] records,
                       bint is_kept_whole, bint is_horizon_due):
        """The records of one batch that stay, unpacked, and what its header then says:
        (count, records, base timestamp, max timestamp, attributes); None if all is as it was.
        """
        cdef Header header
        cdef Buffer out
        cdef int64_t kept, shift = 0, max_timestamp = 0, index
        cdef const uint8_t* p = NULL
        cdef int stop, is_written = 1
        memset(&out, 0, sizeof(Buffer))
        read_header(&header_bytes[0], &header)
        if records.shape[0]:
            p = &records[0]
        with nogil:
            stop = self._parse(p, p + records.shape[0], &header)
            if stop == STOP_END and is_kept_whole:
                kept = header.count
                for index in range(kept):
                    self._parts[index].is_kept = 1
            elif stop == STOP_END:
                kept = self._choose(&header)
        if stop == STOP_DAMAGED:
            raise ValueError("records do not add up")
        if stop != STOP_END:
            raise MemoryError("no memory to rewrite a batch")
        self.records_read += header.count
        self.records_kept += kept
        if not is_kept_whole:
            is_horizon_due = self._has_tombstone(&header)
        if header.attributes & HORIZON_MASK:
            is_horizon_due = False
        if kept == header.count and not is_horizon_due:
            return None
        if is_horizon_due:
            shift = <int64_t> (<uint64_t> header.base_timestamp - <uint64_t> self._horizon_ms)
            header.attributes |= HORIZON_MASK
        try:
            with nogil:
                is_written = self._write_records(&out, &header, shift, &max_timestamp)
            if not is_written:
                raise MemoryError("no memory to rewrite a batch")
            if header.attributes & APPEND_TIME_MASK or kept == 0:
                max_timestamp = header.max_timestamp
            return (kept, taken(&out), self._horizon_ms if is_horizon_due else
                    header.base_timestamp, max_timestamp, header.attributes)
        finally:
            free(out.data)

    def write(self, const uint8_t[::1] batch):
        """Put a whole batch into the output as it is."""
        if not append(&self._out, &batch[0], batch.shape[0]) or not self._note(
                &batch[0], batch.shape[0]):
            raise MemoryError("no memory to rewrite a batch")

    def take_bytes(self):
        return taken(&self._out)

    def take_marks(self):
        """Native 64-bit integers, four to a mark."""
        return taken(&self._marks)


cdef class ColumnsBuilder:
    """Records, one batch after the other, into the buffers of `columns.Columns`."""

    cdef readonly int64_t count
    cdef int64_t _header_count
    cdef Buffer _offsets
    cdef Buffer _timestamps
    cdef Buffer _key_validity
    cdef Buffer _key_ends
    cdef Buffer _key_data
    cdef Buffer _value_validity
    cdef Buffer _value_ends
    cdef Buffer _value_data
    cdef Buffer _header_ends
    cdef Buffer _name_ends
    cdef Buffer _name_data
    cdef Buffer _content_validity
    cdef Buffer _content_ends
    cdef Buffer _content_data

    def __cinit__(self):
        self._begin()

    cdef int _begin(self) except -1:
        self.count = 0
        self._header_count = 0
        if not (append_int32(&self._key_ends, 0) and append_int32(&self._value_ends, 0)
                and append_int32(&self._header_ends, 0) and append_int32(&self._name_ends, 0)
                and append_int32(&self._content_ends, 0)):
            raise MemoryError("no memory for columns")
        return 0

    def __dealloc__(self):
        free(self._offsets.data)
        free(self._timestamps.data)
        free(self._key_validity.data)
        free(self._key_ends.data)
        free(self._key_data.data)
        free(self._value_validity.data)
        free(self._value_ends.data)
        free(self._value_data.data)
        free(self._header_ends.data)
        free(self._name_ends.data)
        free(self._name_data.data)
        free(self._content_validity.data)
        free(self._content_ends.data)
        free(self._content_data.data)

    cdef int _reserve(self, size_t count, size_t records_bytes) noexcept nogil:
        """Room for a batch, so that its records are laid out without asking again."""
        return (reserve(&self._offsets, count * 8) and reserve(&self._timestamps, count * 8)
                and reserve(&self._key_validity, count // 8 + 1)
                and reserve(&self._key_ends, count * 4)
                and reserve(&self._key_data, records_bytes)
                and reserve(&self._value_validity, count // 8 + 1)
                and reserve(&self._value_ends, count * 4)
                and reserve(&self._value_data, records_bytes)
                and reserve(&self._header_ends, count * 4))

    cdef void _cut(self, int64_t count, int64_t header_count) noexcept nogil:
        """Take out the records and headers from these numbers on."""
        self.count = count
        self._header_count = header_count
        self._offsets.size = count * 8
        self._timestamps.size = count * 8
        cut_column(&self._key_validity, &self._key_ends, &self._key_data, count)
        cut_column(&self._value_validity, &self._value_ends, &self._value_data, count)
        self._header_ends.size = (count + 1) * 4
        cut_column(NULL, &self._name_ends, &self._name_data, header_count)
        cut_column(&self._content_validity, &self._content_ends, &self._content_data, header_count)

    cdef int _add_headers(self, Part* part) noexcept nogil:
        cdef int64_t count, index, length
        cdef const uint8_t* field = NULL
        cdef const uint8_t* p
        if part.end - part.headers == 1 and part.headers[0] == 0:
            # What most records have.
            put_int32(&self._header_ends, <int32_t> self._header_count)
            return STOP_END
        p = read_varint(part.headers, part.end, 5, &count)
        if p == NULL or count < 0 or count * 2 > part.end - p:
            return STOP_DAMAGED
        for index in range(count):
            p = read_field(p, part.end, &field, &length)
            if p == NULL or length < 0:
                return STOP_DAMAGED
            if not (append(&self._name_data, field, length)
                    and append_int32(&self._name_ends, <int32_t> self._name_data.size)):
                return STOP_FULL
            p = read_field(p, part.end, &field, &length)
            if p == NULL:
                return STOP_DAMAGED
            if not (reserve(&self._content_validity, 1) and reserve(&self._content_ends, 4)
                    and reserve(&self._content_data, max(length, 0))):
                return STOP_FULL
            put_field(&self._content_validity, &self._content_ends, &self._content_data,
                      self._header_count, field, length)
            self._header_count += 1
        if p != part.end:
            return STOP_DAMAGED
        put_int32(&self._header_ends, <int32_t> self._header_count)
        return STOP_END

    cdef int _add(self, const uint8_t* p, const uint8_t* end, Header* header,
                  int64_t from_offset, int64_t upto_offset) noexcept nogil:
        cdef Part part
        cdef int64_t done, previous = -1, offset, timestamp
        cdef int stop
        if header.count < 0 or <int64_t> header.count * RECORD_BYTES_MIN > end - p:
            return STOP_DAMAGED
        if not self._reserve(header.count, end - p):
            return STOP_FULL
        for done in range(header.count):
            p = read_part(p, end, &part)
            if p == NULL or part.offset_delta <= previous or part.offset_delta > header.last_delta:
                return STOP_DAMAGED
            previous = part.offset_delta
            offset = header.base_offset + previous
            if offset < from_offset or offset >= upto_offset:
                continue
            if header.attributes & APPEND_TIME_MASK:
                timestamp = header.max_timestamp
            elif ms_add_overflows(header.base_timestamp, part.timestamp_delta, &timestamp):
                return STOP_DAMAGED
            put_int64(&self._offsets, offset)
            put_int64(&self._timestamps, timestamp)
            put_field(&self._key_validity, &self._key_ends, &self._key_data, self.count,
                      part.key, part.key_length)
            put_field(&self._value_validity, &self._value_ends, &self._value_data, self.count,
                      part.value, part.value_length)
            stop = self._add_headers(&part)
            if stop != STOP_END:
                return stop
            self.count += 1
        return STOP_END if p == end else STOP_DAMAGED

    def add(self, const uint8_t[::1] header_bytes, const uint8_t[::1] records,
            int64_t from_offset, int64_t upto_offset):
        """The records of one batch, unpacked, with offsets in [from_offset, upto_offset).

        Raises ValueError where they do not add up; then none of them is taken in.
        """
        cdef Header header
        cdef const uint8_t* p = NULL
        cdef int stop
        cdef int64_t count = self.count, header_count = self._header_count
        # Arrow's offsets are 32 bits wide.
        if (self._value_data.size + self._key_data.size + self._name_data.size
                + self._content_data.size + <size_t> records.shape[0] > 0x7FFFFFFF):
            raise ValueError("more than 2 GiB of records in one go")
        read_header(&header_bytes[0], &header)
        if records.shape[0]:
            p = &records[0]
        with nogil:
            stop = self._add(p, p + records.shape[0], &header, from_offset, upto_offset)
        if stop == STOP_DAMAGED:
            self._cut(count, header_count)
            raise ValueError("records do not add up")
        if stop == STOP_FULL:
            raise MemoryError("no memory for columns")

    def take(self):
        """The fourteen buffers, in the order of the fields of `columns.Columns`; then the
        builder is empty, and keeps the memory that it has for the next batches."""
        found = (
            taken(&self._offsets), taken(&self._timestamps),
            taken(&self._key_validity), taken(&self._key_ends), taken(&self._key_data),
            taken(&self._value_validity), taken(&self._value_ends), taken(&self._value_data),
            taken(&self._header_ends), taken(&self._name_ends), taken(&self._name_data),
            taken(&self._content_validity), taken(&self._content_ends),
            taken(&self._content_data),
        )
        self._begin()
        return found


def checksum(const uint8_t[::1] data):
    """CRC-32C, as the rewriter computes it where the processor helps, and where it does not."""
    if data.shape[0] == 0:
        return 0, 0
    return (ms_crc32c(&data[0], data.shape[0]), ms_crc32c_soft(&data[0], data.shape[0]))
