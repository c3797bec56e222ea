# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""JSON, strictly and without recursion; `_json_pure` gives the same.

Every step is at the first byte of what it reads, which is valid UTF-8, and returns where that
ends, or NULL if it is not JSON.
"""

from libc.stdint cimport uint8_t, uint32_t

from millstream.lines._text cimport (
    DIGIT, STRING_END, Span, is_at, is_in, is_text_at, put, skip, skip_not,
)

cdef enum:
    # How deep a value within the line's object may nest: one less than `JSON_DEPTH_MAX`.
    NESTED_MAX = 199


cdef inline const uint8_t* skip_space(const uint8_t* p, const uint8_t* end) noexcept nogil:
    while p < end and (p[0] == b' ' or p[0] == b'\t' or p[0] == b'\n' or p[0] == b'\r'):
        p += 1
    return p


cdef inline int hex_value(uint8_t letter) noexcept nogil:
    if b'0' <= letter <= b'9':
        return letter - 48
    letter |= 0x20
    return letter - 87 if b'a' <= letter <= b'f' else -1


cdef inline int read_unit(const uint8_t* p, const uint8_t* end) noexcept nogil:
    """The number that four hexadecimal digits are, or -1."""
    cdef int found = 0, digit, i
    if end - p < 4:
        return -1
    for i in range(4):
        digit = hex_value(p[i])
        if digit < 0:
            return -1
        found = found * 16 + digit
    return found


cdef inline const uint8_t* skip_string(
    const uint8_t* p, const uint8_t* end, bint* is_escaped
) noexcept nogil:
    is_escaped[0] = False
    if not is_at(p, end, b'"'):
        return NULL
    p += 1
    while True:
        p = skip_not(p, end, STRING_END)
        if p == end or p[0] < 0x20:
            return NULL
        if p[0] == b'"':
            return p + 1
        is_escaped[0] = True
        if end - p < 2:
            return NULL
        if p[1] == b'u':
            if read_unit(p + 2, end) < 0:
                return NULL
            p += 6
        elif (p[1] == b'"' or p[1] == b'\\' or p[1] == b'/' or p[1] == b'b' or p[1] == b'f'
                or p[1] == b'n' or p[1] == b'r' or p[1] == b't'):
            p += 2
        else:
            return NULL


cdef inline uint8_t* put_point(uint8_t* out, uint32_t point) noexcept nogil:
    """A code point as UTF-8; never longer than it was as an escape."""
    if point < 0x80:
        out[0] = <uint8_t> point
        return out + 1
    if point < 0x800:
        out[0] = <uint8_t> (0xC0 | point >> 6)
        out[1] = <uint8_t> (0x80 | point & 0x3F)
        return out + 2
    if point < 0x10000:
        out[0] = <uint8_t> (0xE0 | point >> 12)
        out[1] = <uint8_t> (0x80 | point >> 6 & 0x3F)
        out[2] = <uint8_t> (0x80 | point & 0x3F)
        return out + 3
    out[0] = <uint8_t> (0xF0 | point >> 18)
    out[1] = <uint8_t> (0x80 | point >> 12 & 0x3F)
    out[2] = <uint8_t> (0x80 | point >> 6 & 0x3F)
    out[3] = <uint8_t> (0x80 | point & 0x3F)
    return out + 4


cdef inline uint8_t unescaped(uint8_t letter) noexcept nogil:
    if letter == b'b':
        return 8
    if letter == b'f':
        return 12
    if letter == b'n':
        return 10
    if letter == b'r':
        return 13
    return 9 if letter == b't' else letter


cdef inline Span unescape(
    const uint8_t* p, const uint8_t* end, uint8_t* out
) noexcept nogil:
    """What is between the quotes of a string that was read, written to `out`."""
    cdef uint8_t* start = out
    cdef int unit, low
    cdef Span text
    while p < end:
        if p[0] != b'\\':
            out[0] = p[0]
            out += 1
            p += 1
        elif p[1] != b'u':
            out[0] = unescaped(p[1])
            out += 1
            p += 2
        else:
            unit = read_unit(p + 2, end)
            p += 6
            if 0xD800 <= unit < 0xDC00 and is_text_at(p, end, b"\\u", 2):
                low = read_unit(p + 2, end)
                if 0xDC00 <= low < 0xE000:
                    unit = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00)
                    p += 6
            # Half of a pair stands for nothing.
            out = put_point(out, 0xFFFD if 0xD800 <= unit < 0xE000 else <uint32_t> unit)
    put(&text, start, out)
    return text


cdef inline const uint8_t* skip_number(const uint8_t* p, const uint8_t* end) noexcept nogil:
    cdef const uint8_t* behind
    if is_at(p, end, b'-'):
        p += 1
        if is_text_at(p, end, b"Infinity", 8):
            return p + 8
    behind = p + 1 if is_at(p, end, b'0') else skip(p, end, DIGIT)
    if behind == p:
        return NULL
    p = behind
    if is_at(p, end, b'.') and p + 1 < end and is_in(p[1], DIGIT):
        p = skip(p + 1, end, DIGIT)
    if is_at(p, end, b'e') or is_at(p, end, b'E'):
        behind = p + 1
        if is_at(behind, end, b'-') or is_at(behind, end, b'+'):
            behind += 1
        if behind < end and is_in(behind[0], DIGIT):
            p = skip(behind, end, DIGIT)
    return p


cdef inline const uint8_t* skip_scalar(const uint8_t* p, const uint8_t* end) noexcept nogil:
    cdef bint unused
    if p == end:
        return NULL
    if p[0] == b'"':
        return skip_string(p, end, &unused)
    if is_text_at(p, end, b"true", 4) or is_text_at(p, end, b"null", 4):
        return p + 4
    if is_text_at(p, end, b"false", 5):
        return p + 5
    # Not JSON, but some writers write them.
    if is_text_at(p, end, b"NaN", 3):
        return p + 3
    if is_text_at(p, end, b"Infinity", 8):
        return p + 8
    return skip_number(p, end)


cdef inline const uint8_t* skip_name(const uint8_t* p, const uint8_t* end) noexcept nogil:
    """Behind a name and its colon."""
    cdef bint unused
    p = skip_string(p, end, &unused)
    if p == NULL:
        return NULL
    p = skip_space(p, end)
    return p + 1 if is_at(p, end, b':') else NULL


cdef inline const uint8_t* skip_nested(const uint8_t* p, const uint8_t* end) noexcept nogil:
    """An array or an object, with all that is in it."""
    cdef uint8_t[NESTED_MAX] closers
    cdef int depth = 0
    # Whether what is open may be closed here: it is empty, or a value was before.
    cdef bint is_closable = False, is_value_next = True
    while True:
        p = skip_space(p, end)
        if p == end:
            return NULL
        if is_closable and p[0] == closers[depth - 1]:
            p += 1
            depth -= 1
            if depth == 0:
                return p
            is_value_next = False
            continue
        if not is_value_next:
            if p[0] != b',':
                return NULL
            p = skip_space(p + 1, end)
            is_value_next = True
            is_closable = False
            if p == end:
                return NULL
        if depth and closers[depth - 1] == b'}':
            p = skip_name(p, end)
            if p == NULL:
                return NULL
            p = skip_space(p, end)
            if p == end:
                return NULL
        if p[0] == b'{' or p[0] == b'[':
            if depth == NESTED_MAX:
                return NULL
            closers[depth] = b'}' if p[0] == b'{' else b']'
            depth += 1
            p += 1
            is_closable = True
            continue
        p = skip_scalar(p, end)
        if p == NULL:
            return NULL
        is_value_next = False
        is_closable = True
