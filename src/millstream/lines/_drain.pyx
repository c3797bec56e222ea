# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Templates of messages, compiled; `_drain_pure` is the same in Python.

The tokens of a message, with its numbers replaced, are written into one buffer and compared
there with the templates of a leaf. Only the first two become objects, to find the leaf.
"""

import numpy as np

from millstream.lines import _drain_pure

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, uint8_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy

NAME = "compiled"

cdef enum:
    CHILDREN_MAX = 100
    TOKENS_MAX = 128
    SIMILARITY_TENTHS = 7
    NOTHING = -1
    OTHER = -2

assert _drain_pure.CHILDREN_MAX == CHILDREN_MAX
assert _drain_pure.TOKENS_MAX == TOKENS_MAX
assert _drain_pure.SIMILARITY_TENTHS == SIMILARITY_TENTHS
assert (_drain_pure.NOTHING, _drain_pure.OTHER) == (NOTHING, OTHER)


# A template's tokens, in memory of its own. Those that may be anything are of size -1.
cdef struct Token:
    int32_t start
    int32_t size


cdef struct Template:
    Token* tokens
    int count
    uint8_t* data


cdef inline bint is_digit(uint8_t letter) noexcept nogil:
    return 48 <= letter <= 57


cdef inline bint is_hex(uint8_t letter) noexcept nogil:
    return is_digit(letter) or 97 <= (letter | 0x20) <= 102


cdef inline bint is_in_word(uint8_t letter) noexcept nogil:
    return is_digit(letter) or letter >= 0x80 or 97 <= (letter | 0x20) <= 122


cdef inline bint is_space(uint8_t letter) noexcept nogil:
    return letter == 32 or 9 <= letter <= 13


cdef inline const uint8_t* word_end(const uint8_t* p, const uint8_t* end) noexcept nogil:
    while p < end and is_in_word(p[0]):
        p += 1
    return p


cdef inline const uint8_t* number_end(
    const uint8_t* p, const uint8_t* end, Py_ssize_t hex_digits_min
) noexcept nogil:
    """Behind the word here if it is a number, else NULL; any `hex_digits_min` at least will do."""
    cdef const uint8_t* behind = word_end(p, end)
    cdef const uint8_t* at = p
    cdef bint is_decimal = True, has_digit = False
    if behind == p:
        return NULL
    if behind - p >= 3 and p[0] == b'0' and (p[1] | 0x20) == b'x':
        at = p + 2
        while at < behind and is_hex(at[0]):
            at += 1
        return behind if at == behind else NULL
    while at < behind:
        if not is_hex(at[0]):
            return NULL
        if is_digit(at[0]):
            has_digit = True
        else:
            is_decimal = False
        at += 1
    if is_decimal or (behind - p >= 8 and has_digit):
        return behind
    return behind if hex_digits_min and behind - p >= hex_digits_min else NULL


cdef inline const uint8_t* numbers_end(const uint8_t* p, const uint8_t* end) noexcept nogil:
    """Behind a number and those that follow it, as in addresses, versions and UUIDs."""
    cdef const uint8_t* behind
    if p < end and (p[0] == b'-' or p[0] == b'+'):
        p += 1
    behind = number_end(p, end, 0)
    return NULL if behind == NULL else more_numbers_end(behind, end)


cdef inline const uint8_t* more_numbers_end(
    const uint8_t* behind, const uint8_t* end
) noexcept nogil:
    """Behind those that follow the number which ends here."""
    cdef const uint8_t* next
    while behind < end and (behind[0] == b'.' or behind[0] == b':' or behind[0] == b'-'):
        next = number_end(behind + 1, end, 4 if behind[0] == b'-' else 0)
        if next == NULL:
            break
        behind = next
    return behind


# Of a hash: a token is mixed in by parts, each of up to eight bytes at once. A part that is not eight
# letters has its kind in the last byte, below any letter's, so other parts give other numbers.
cdef uint64_t HASH_START = 0xcbf29ce484222325
cdef uint64_t HASH_PRIME = 0x9e3779b97f4a7c15
# The number of letters left, from 0 to 7, is a kind, too.
cdef uint64_t OF_SIGN = <uint64_t> 8 << 56
cdef uint64_t OF_ANYTHING = <uint64_t> 9 << 56
cdef uint64_t OF_END = <uint64_t> 10 << 56


cdef inline uint64_t mixed(uint64_t found, uint64_t part) noexcept nogil:
    found = (found ^ part) * HASH_PRIME
    return found ^ found >> 32


# Looking a letter up is faster than comparing it.
cdef enum:
    SPACE = 1
    IN_WORD = 2
    DIGIT = 4
    HEX = 8

cdef uint8_t[256] LETTERS
cdef int _letter
for _letter in range(256):
    LETTERS[_letter] = (
        (SPACE if is_space(_letter) else 0)
        | (IN_WORD if is_in_word(_letter) else 0)
        | (DIGIT if is_digit(_letter) else 0)
        | (HEX if is_hex(_letter) else 0)
    )


cdef inline const uint8_t* mix_word(
    const uint8_t* p, const uint8_t* end, uint64_t* found
) noexcept nogil:
    """The word that begins here, or the numbers if it is one; where that ends.

    Each letter is looked at once, for its hash and for its kind: what takes time is not the
    letters, it is every decision whose outcome the processor cannot guess.
    """
    cdef const uint8_t* start = p
    cdef uint64_t hash = found[0], part = 0
    cdef uint8_t all_are = 255, some_are = 0
    cdef int shift = 0
    while p < end and LETTERS[p[0]] & IN_WORD:
        all_are &= LETTERS[p[0]]
        some_are |= LETTERS[p[0]]
        part |= <uint64_t> p[0] << shift
        shift += 8
        p += 1
        if shift == 64:
            hash = mixed(hash, part)
            part = 0
            shift = 0
    if all_are & DIGIT or (all_are & HEX and some_are & DIGIT and p - start >= 8) or (
            start[0] == b'0' and number_end(start, p, 0) != NULL):
        found[0] = mixed(found[0], OF_ANYTHING)
        return more_numbers_end(p, end)
    found[0] = mixed(hash, part | <uint64_t> (shift // 8) << 56)
    return p


cdef uint64_t skeleton_hash(const uint8_t* p, const uint8_t* end) noexcept nogil:
    """Of the tokens that `Miner._read` finds."""
    cdef uint64_t found = HASH_START
    cdef const uint8_t* behind
    cdef int count = 0
    while count < TOKENS_MAX:
        while p < end and LETTERS[p[0]] & SPACE:
            p += 1
        if p == end:
            break
        while p < end and not LETTERS[p[0]] & SPACE:
            behind = NULL
            if LETTERS[p[0]] & IN_WORD:
                behind = mix_word(p, end, &found)
            elif p[0] == b'-' or p[0] == b'+':
                behind = numbers_end(p, end)
                if behind != NULL:
                    found = mixed(found, OF_ANYTHING)
            if behind != NULL:
                p = behind
                # Behind a word a sign is not that of a number.
                if p < end and (p[0] == b'-' or p[0] == b'+'):
                    found = mixed(found, OF_SIGN | p[0])
                    p += 1
            elif end - p >= 3 and memcmp(p, b"<*>", 3) == 0:
                # The message says so itself.
                found = mixed(found, OF_ANYTHING)
                p += 3
            else:
                found = mixed(found, OF_SIGN | p[0])
                p += 1
        found = mixed(found, OF_END)
        count += 1
    return found if found else 1


def skeleton_hashes(messages):
    """For each message a number that is the same for the same tokens; 0 for none."""
    cdef Py_ssize_t count = len(messages), offset = messages.offset, row, place
    cdef const uint8_t* validity = NULL
    cdef const uint8_t* data = NULL
    cdef const int32_t* ends
    hashes = np.zeros(count, np.uint64)
    cdef uint64_t[::1] out = hashes
    if messages.null_count == count:
        return hashes
    validity_buffer, ends_buffer, data_buffer = messages.buffers()
    if str(messages.type) != "string" or ends_buffer.size < (offset + count + 1) * 4:
        raise ValueError("messages are not a column of strings")
    if validity_buffer is not None:
        validity = <const uint8_t*> <uintptr_t> validity_buffer.address
    if data_buffer is not None:
        data = <const uint8_t*> <uintptr_t> data_buffer.address
    ends = <const int32_t*> <uintptr_t> ends_buffer.address
    for row in range(count):
        place = offset + row
        if validity == NULL or validity[place // 8] >> (place % 8) & 1:
            out[row] = skeleton_hash(data + ends[place], data + ends[place + 1])
    return hashes


def group_hashes(const uint64_t[::1] hashes):
    """Different numbers in the order in which they come, where each comes first, and for each
    number its place among the different ones."""
    cdef Py_ssize_t count = hashes.shape[0], row, slots = 16
    cdef uint64_t mask, slot
    cdef int32_t known = 0, place
    while slots < 2 * count:
        slots *= 2
    mask = slots - 1
    first = np.empty(count, np.int32)
    group = np.empty(count, np.int32)
    cdef int32_t[::1] firsts = first, groups = group
    # One more than the place; 0 is free.
    cdef int32_t* table = <int32_t*> calloc(slots, sizeof(int32_t))
    if table == NULL:
        raise MemoryError("no memory for hashes")
    for row in range(count):
        slot = hashes[row] & mask
        while True:
            place = table[slot] - 1
            if place < 0:
                place = known
                firsts[known] = <int32_t> row
                known += 1
                table[slot] = known
                break
            if hashes[firsts[place]] == hashes[row]:
                break
            slot = (slot + 1) & mask
        groups[row] = place
    free(table)
    first = first[:known]
    return np.asarray(hashes)[first], first, group


cdef class Miner:
    cdef Template* _templates
    cdef int _count
    cdef int _room
    cdef int _templates_max
    cdef dict _tree
    # Of the message at hand.
    cdef Token[TOKENS_MAX] _tokens
    cdef int _token_count
    cdef uint8_t* _data
    cdef Py_ssize_t _data_room

    def __cinit__(self, templates_max):
        self._templates_max = templates_max
        self._tree = {}

    def __dealloc__(self):
        cdef int i
        for i in range(self._count):
            free(self._templates[i].tokens)
            free(self._templates[i].data)
        free(self._templates)
        free(self._data)

    def add(self, messages):
        """For each message the number of its template, `NOTHING` or `OTHER`."""
        cdef Py_ssize_t count = len(messages), offset = messages.offset, row, place
        cdef const uint8_t* validity = NULL
        cdef const uint8_t* data = NULL
        cdef const int32_t* ends
        numbers = np.zeros(count, np.int32)
        cdef int32_t[::1] out = numbers
        if count == 0:
            return numbers
        validity_buffer, ends_buffer, data_buffer = messages.buffers()
        if str(messages.type) != "string" or ends_buffer.size < (offset + count + 1) * 4:
            raise ValueError("messages are not a column of strings")
        if validity_buffer is not None:
            validity = <const uint8_t*> <uintptr_t> validity_buffer.address
        if data_buffer is not None:
            data = <const uint8_t*> <uintptr_t> data_buffer.address
        ends = <const int32_t*> <uintptr_t> ends_buffer.address
        for row in range(count):
            place = offset + row
            if validity != NULL and not validity[place // 8] >> (place % 8) & 1:
                out[row] = NOTHING
                continue
            self._read(data + ends[place], data + ends[place + 1])
            out[row] = self._add()
        return numbers

    def texts(self, int start=0):
        """The templates from this number on."""
        cdef int i, j
        found = []
        for i in range(start, self._count):
            found.append(" ".join(
                _text(&self._templates[i].tokens[j], self._templates[i].data)
                for j in range(self._templates[i].count)
            ))
        return found

    cdef _read(self, const uint8_t* p, const uint8_t* end):
        """The tokens of a message, with numbers replaced: three bytes for each at most."""
        cdef uint8_t* grown
        cdef const uint8_t* token_end
        cdef uint8_t* out
        self._token_count = 0
        if self._data_room < 3 * (end - p) + 1:
            grown = <uint8_t*> realloc(self._data, 3 * (end - p) + 1)
            if grown == NULL:
                raise MemoryError("no memory for a message")
            self._data = grown
            self._data_room = 3 * (end - p) + 1
        out = self._data
        while self._token_count < TOKENS_MAX:
            while p < end and is_space(p[0]):
                p += 1
            if p == end:
                return
            token_end = p
            while token_end < end and not is_space(token_end[0]):
                token_end += 1
            out = self._read_token(p, token_end, out)
            p = token_end

    cdef uint8_t* _read_token(
        self, const uint8_t* p, const uint8_t* end, uint8_t* out
    ) noexcept:
        cdef Token* token = &self._tokens[self._token_count]
        cdef uint8_t* start = out
        cdef const uint8_t* behind
        cdef bint is_behind_word
        while p < end:
            # Always at the start of a word, or between words.
            behind = numbers_end(p, end)
            if behind != NULL:
                memcpy(out, b"<*>", 3)
                out += 3
                is_behind_word = True
            else:
                behind = word_end(p, end)
                is_behind_word = behind > p
                if behind == p:
                    behind = p + 1
                memcpy(out, p, behind - p)
                out += behind - p
            p = behind
            # Behind a word a sign is not that of a number.
            if is_behind_word and p < end and (p[0] == b'-' or p[0] == b'+'):
                out[0] = p[0]
                out += 1
                p += 1
        token.start = <int32_t> (start - self._data)
        token.size = <int32_t> (out - start)
        if token.size == 3 and memcmp(start, b"<*>", 3) == 0:
            token.size = -1
        self._token_count += 1
        return out

    cdef bytes _key(self, int place, dict children):
        """The token, or that of anything where it varies or too many are known."""
        cdef Token token
        cdef const uint8_t* p
        cdef int32_t i
        if place >= self._token_count:
            key = b""
        else:
            token = self._tokens[place]
            if token.size < 0:
                return b"<*>"
            p = self._data + token.start
            for i in range(token.size):
                if is_digit(p[i]) or (token.size - i >= 3 and memcmp(p + i, b"<*>", 3) == 0):
                    return b"<*>"
            key = PyBytes_FromStringAndSize(<const char*> p, token.size)
        if key not in children and len(children) >= CHILDREN_MAX:
            return b"<*>"
        return key

    cdef list _leaf(self):
        """The templates of which one may be that of the message."""
        cdef dict children = self._tree.setdefault(self._token_count, {})
        cdef dict grandchildren = children.setdefault(self._key(0, children), {})
        return grandchildren.setdefault(self._key(1, grandchildren), [])

    cdef int _same(self, Template* template, int* anything) noexcept:
        cdef int same = 0, i
        cdef Token* one
        cdef Token* other
        anything[0] = 0
        for i in range(template.count):
            one = &template.tokens[i]
            other = &self._tokens[i]
            if one.size < 0:
                anything[0] += 1
                same += 1
            elif one.size == other.size and memcmp(
                    template.data + one.start, self._data + other.start, one.size) == 0:
                same += 1
        return same

    cdef int _add(self) except -3:
        cdef list leaf = self._leaf()
        cdef int best = -1, best_same = -1, best_any = -1, same, anything = 0, number, i
        cdef Token* one
        cdef Token* other
        for number in leaf:
            same = self._same(&self._templates[number], &anything)
            if same > best_same or (same == best_same and anything > best_any):
                best, best_same, best_any = number, same, anything
        if best >= 0 and best_same * 10 >= SIMILARITY_TENTHS * self._token_count:
            for i in range(self._token_count):
                one = &self._templates[best].tokens[i]
                other = &self._tokens[i]
                if one.size != other.size or (one.size > 0 and memcmp(
                        self._templates[best].data + one.start, self._data + other.start,
                        one.size) != 0):
                    one.size = -1
            return best
        if self._count >= self._templates_max:
            return OTHER
        self._append()
        leaf.append(self._count - 1)
        return self._count - 1

    cdef _append(self):
        """The message at hand as a template."""
        cdef Template* grown
        cdef Template template
        cdef Py_ssize_t size = 0
        cdef int room = self._room * 2 if self._room else 64
        if self._count == self._room:
            grown = <Template*> realloc(self._templates, room * sizeof(Template))
            if grown == NULL:
                raise MemoryError("no memory for templates")
            self._templates = grown
            self._room = room
        template.count = self._token_count
        for i in range(self._token_count):
            size = max(size, self._tokens[i].start + max(self._tokens[i].size, 0))
        template.tokens = <Token*> calloc(self._token_count + 1, sizeof(Token))
        template.data = <uint8_t*> malloc(size + 1)
        if template.tokens == NULL or template.data == NULL:
            free(template.tokens)
            free(template.data)
            raise MemoryError("no memory for templates")
        memcpy(template.tokens, self._tokens, self._token_count * sizeof(Token))
        memcpy(template.data, self._data, size)
        self._templates[self._count] = template
        self._count += 1


cdef str _text(Token* token, const uint8_t* data):
    if token.size < 0:
        return "<*>"
    return PyBytes_FromStringAndSize(<const char*> data + token.start, token.size).decode()
