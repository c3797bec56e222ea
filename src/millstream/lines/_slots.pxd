# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Where the parts of a line go, and the parts that several layouts have.

A function that begins with `begins` tells whether a line is of a layout, from its beginning.
One that begins with `scan` fills slots and tells whether the whole line is as its layout says;
after a no the slots are not to be used. `_scan_pure` has all of them as expressions.
"""

from libc.stdint cimport uint8_t
from libc.string cimport memcmp

from millstream.lines._text cimport (
    DIGIT, LETTER, LOWER, SPACE, Span, UPPER, find, is_at, is_in, put, skip, skip_blanks,
)

# The first sixteen are in the order of `layouts.ALIASES`.
cdef enum:
    TIME, HOST, SERVICE, PROGRAM_NAME, ADDRESS, USER, METHOD, PATH, QUERY, STATUS, SIZE, DURATION
    LEVEL, MESSAGE, REFERRER, AGENT
    PRIORITY, MONTH, DAY, CLOCK, YEAR, SHORT, REST
    SLOTS


cdef inline const uint8_t* read_priority(
    const uint8_t* p, const uint8_t* end, Span* priority
) noexcept nogil:
    """`<165>`."""
    cdef const uint8_t* behind
    if not is_at(p, end, b'<'):
        return NULL
    behind = skip(p + 1, end, DIGIT)
    if not 1 <= behind - p - 1 <= 3 or not is_at(behind, end, b'>'):
        return NULL
    put(priority, p + 1, behind)
    return behind + 1


cdef inline bint is_month(const uint8_t* p, const uint8_t* end) noexcept nogil:
    """`Sep`, or any three letters written so."""
    return end - p >= 3 and is_in(p[0], UPPER) and is_in(p[1], LOWER) and is_in(p[2], LOWER)


cdef inline const uint8_t* read_day(
    const uint8_t* p, const uint8_t* end, Span* day
) noexcept nogil:
    """Blanks, a day, and one blank."""
    cdef const uint8_t* start = skip_blanks(p, end)
    cdef const uint8_t* behind = skip(start, end, DIGIT)
    if start == p or not 1 <= behind - start <= 2 or not is_at(behind, end, b' '):
        return NULL
    put(day, start, behind)
    return behind + 1


cdef inline const uint8_t* skip_program(const uint8_t* p, const uint8_t* end) noexcept nogil:
    """Behind what may be the name of a program."""
    while p < end and not is_in(p[0], SPACE) and p[0] != b':' and p[0] != b'[':
        p += 1
    return p


cdef inline const uint8_t* read_program(
    const uint8_t* p, const uint8_t* end, Span* program
) noexcept nogil:
    """Behind `su[77]: `; where that is not, nothing is read."""
    cdef const uint8_t* behind = skip_program(p, end)
    cdef const uint8_t* colon = behind
    if behind == p:
        return p
    if is_at(colon, end, b'['):
        colon = find(colon + 1, end, b']')
        if colon == NULL:
            return p
        colon += 1
    if not is_at(colon, end, b':'):
        return p
    put(program, p, behind)
    return colon + 2 if is_at(colon + 1, end, b' ') else colon + 1


cdef inline Py_ssize_t level_size(const uint8_t* p, const uint8_t* end) noexcept nogil:
    """How long the name of a level here is; 0 if there is none."""
    cdef Py_ssize_t size = skip(p, end, LETTER) - p
    cdef uint8_t[8] name
    cdef Py_ssize_t i
    if size < 3 or size > 8:
        return 0
    for i in range(size):
        name[i] = p[i] | 0x20
    if size == 3:
        return size if memcmp(name, b"err", 3) == 0 else 0
    if size == 4:
        return size if (memcmp(name, b"info", 4) == 0 or memcmp(name, b"warn", 4) == 0
                        or memcmp(name, b"crit", 4) == 0) else 0
    if size == 5:
        return size if (memcmp(name, b"debug", 5) == 0 or memcmp(name, b"error", 5) == 0
                        or memcmp(name, b"trace", 5) == 0 or memcmp(name, b"fatal", 5) == 0) else 0
    if size == 6:
        return size if memcmp(name, b"notice", 6) == 0 else 0
    if size == 7:
        return size if memcmp(name, b"warning", 7) == 0 else 0
    return size if memcmp(name, b"critical", 8) == 0 else 0


cdef inline const uint8_t* skip_number(const uint8_t* p, const uint8_t* end) noexcept nogil:
    """Behind up to ten digits and the blanks after them; where those are not, nothing."""
    cdef const uint8_t* behind = skip(p, end, DIGIT)
    if not 1 <= behind - p <= 10 or not is_at(behind, end, b' '):
        return p
    return skip_blanks(behind, end)
