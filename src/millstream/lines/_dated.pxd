# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Text that has a time before it, in four forms."""

from libc.stdint cimport uint8_t
from libc.string cimport memcmp

from millstream.lines._slots cimport (
    CLOCK, DAY, HOST, LEVEL, MESSAGE, MONTH, PROGRAM_NAME, SHORT, TIME, YEAR, is_month,
    level_size, read_day, read_program, skip_number,
)
from millstream.lines._text cimport (
    DIGIT, PROGRAM, SPACE, Span, UPPER, WORD, are_in, is_at, is_in, is_text_at, put, read_word,
    skip, skip_blanks, skip_not,
)
from millstream.lines._times cimport begins_iso, is_clock

cdef enum:
    FILE_NAME_MAX = 100
    FILE_END_MAX = 60
    LABEL_MAX = 100
    PROGRAM_MAX = 200


cdef inline bint begins_errorlog(const uint8_t* p, const uint8_t* end) noexcept nogil:
    return (
        end - p >= 20 and p[0] == b'[' and is_month(p + 1, end) and p[4] == b' '
        and is_month(p + 5, end) and p[8] == b' ' and are_in(p + 9, end, 2, DIGIT)
        and p[11] == b' ' and is_clock(p + 12, end)
    )


cdef inline bint scan_errorlog(
    const uint8_t* p, const uint8_t* end, Span* slots
) noexcept nogil:
    """Apache's error log."""
    cdef const uint8_t* word
    cdef const uint8_t* behind
    if not begins_errorlog(p, end):
        return False
    put(&slots[MONTH], p + 5, p + 8)
    put(&slots[DAY], p + 9, p + 11)
    put(&slots[CLOCK], p + 12, p + 20)
    p += 20
    if is_at(p, end, b'.') and are_in(p + 1, end, 1, DIGIT):
        p = skip(p + 1, end, DIGIT)
    if not (is_at(p, end, b' ') and are_in(p + 1, end, 4, DIGIT)
            and is_text_at(p + 5, end, b"] ", 2)):
        return False
    put(&slots[YEAR], p + 1, p + 5)
    p += 7
    if is_at(p, end, b'['):
        word = p + 1
        behind = skip(word, end, WORD)
        if is_at(behind, end, b':'):
            word = behind + 1
            behind = skip(word, end, WORD)
        if behind > word and is_text_at(behind, end, b"] ", 2):
            put(&slots[LEVEL], word, behind)
            p = behind + 2
    put(&slots[MESSAGE], p, end)
    return True


cdef inline const uint8_t* skip_short(const uint8_t* p, const uint8_t* end) noexcept nogil:
    """Behind `081109 203615` or `17/06/09 20:10:40`."""
    if are_in(p, end, 6, DIGIT):
        return p + 13 if is_at(p + 6, end, b' ') and are_in(p + 7, end, 6, DIGIT) else NULL
    if (are_in(p, end, 2, DIGIT) and is_at(p + 2, end, b'/') and are_in(p + 3, end, 2, DIGIT)
            and is_at(p + 5, end, b'/') and are_in(p + 6, end, 2, DIGIT)
            and is_at(p + 8, end, b' ') and is_clock(p + 9, end)):
        return p + 17
    return NULL


cdef inline bint begins_shortdate(const uint8_t* p, const uint8_t* end) noexcept nogil:
    p = skip_short(p, end)
    return p != NULL and is_at(p, end, b' ')


cdef inline bint scan_shortdate(
    const uint8_t* p, const uint8_t* end, Span* slots
) noexcept nogil:
    cdef const uint8_t* behind = skip_short(p, end)
    cdef Py_ssize_t size
    if behind == NULL or not is_at(behind, end, b' '):
        return False
    put(&slots[SHORT], p, behind)
    p = skip_number(skip_blanks(behind, end), end)
    size = level_size(p, end)
    if size and p + size < end and (p[size] == b' ' or p[size] == b':'):
        put(&slots[LEVEL], p, p + size)
        p += size
        while p < end and (p[0] == b' ' or p[0] == b':'):
            p += 1
    behind = skip(p, end, PROGRAM)
    if 1 <= behind - p <= PROGRAM_MAX and is_text_at(behind, end, b": ", 2):
        put(&slots[PROGRAM_NAME], p, behind)
        p = behind + 2
    put(&slots[MESSAGE], p, end)
    return True


cdef inline const uint8_t* skip_label(
    const uint8_t* p, const uint8_t* end, Span* time
) noexcept nogil:
    """Behind a word, the second and the day."""
    cdef Span unused
    cdef const uint8_t* behind
    p = read_word(p, end, &unused)
    if p == NULL:
        return NULL
    behind = skip(p, end, DIGIT)
    if not 9 <= behind - p <= 10:
        return NULL
    put(time, p, behind)
    p = behind
    if (end - p >= 12 and p[0] == b' ' and are_in(p + 1, end, 4, DIGIT) and p[5] == b'.'
            and are_in(p + 6, end, 2, DIGIT) and p[8] == b'.' and are_in(p + 9, end, 2, DIGIT)
            and p[11] == b' '):
        return p + 12
    return NULL


cdef inline bint begins_labelled(const uint8_t* p, const uint8_t* end) noexcept nogil:
    cdef Span time
    cdef const uint8_t* start = p
    p = skip_label(p, end, &time)
    return p != NULL and time.at - start - 1 <= LABEL_MAX


cdef inline bint scan_labelled(
    const uint8_t* p, const uint8_t* end, Span* slots
) noexcept nogil:
    """What collectors of large machines write before a line: label, second, day, host."""
    cdef const uint8_t* behind
    cdef Span word
    p = skip_label(p, end, &slots[TIME])
    p = read_word(p, end, &slots[HOST]) if p != NULL else NULL
    if p == NULL:
        return False
    put(&slots[MESSAGE], p, end)
    if is_month(p, end):
        behind = read_day(p + 3, end, &word)
        if behind == NULL or not is_clock(behind, end) or not is_at(behind + 8, end, b' '):
            return True
        behind = read_word(behind + 9, end, &word)
        if behind != NULL:
            put(&slots[MESSAGE], read_program(behind, end, &slots[PROGRAM_NAME]), end)
        return True
    if not (end - p >= 12 and are_in(p, end, 4, DIGIT) and p[4] == b'-'
            and are_in(p + 5, end, 2, DIGIT) and p[7] == b'-' and are_in(p + 8, end, 2, DIGIT)
            and p[10] == b'-'):
        return True
    behind = p + 11
    while behind < end and (is_in(behind[0], DIGIT) or behind[0] == b'.'):
        behind += 1
    if behind == p + 11 or not is_at(behind, end, b' '):
        return True
    behind = read_word(behind + 1, end, &word)
    behind = read_word(behind, end, &word) if behind != NULL else NULL
    behind = read_word(behind, end, &word) if behind != NULL else NULL
    if behind == NULL:
        return True
    p = skip(behind, end, UPPER)
    if p > behind and is_at(p, end, b' '):
        put(&slots[LEVEL], behind, p)
        put(&slots[MESSAGE], p + 1, end)
    return True


cdef inline const uint8_t* skip_file(const uint8_t* p, const uint8_t* end) noexcept nogil:
    """Behind the name of a log file that stands before the line, as OpenStack has it."""
    cdef Py_ssize_t longest = FILE_NAME_MAX + 4 + FILE_END_MAX
    cdef Py_ssize_t size, i
    # One more, to see that a longer word is no such name.
    cdef const uint8_t* limit = p + longest + 1 if end - p > longest else end
    cdef const uint8_t* behind = skip_not(p, limit, SPACE)
    size = behind - p
    if not is_at(behind, end, b' ') or size > longest:
        return NULL
    for i in range(1, min(size - 4, <Py_ssize_t> FILE_NAME_MAX) + 1):
        if size - i - 4 <= FILE_END_MAX and memcmp(p + i, b".log", 4) == 0:
            return behind + 1
    return NULL


cdef inline const uint8_t* skip_iso(const uint8_t* p, const uint8_t* end) noexcept nogil:
    """Behind a date and a clock with seconds, a fraction and a zone."""
    cdef const uint8_t* zone
    if not begins_iso(p, end) or not is_at(p + 16, end, b':') or not are_in(p + 17, end, 2, DIGIT):
        return NULL
    p += 19
    if (is_at(p, end, b'.') or is_at(p, end, b',')) and are_in(p + 1, end, 1, DIGIT):
        p = skip(p + 1, p + 10 if end - p > 10 else end, DIGIT)
    zone = p + 1 if is_at(p, end, b' ') else p
    if is_at(zone, end, b'Z'):
        return zone + 1
    if (is_at(zone, end, b'+') or is_at(zone, end, b'-')) and are_in(zone + 1, end, 2, DIGIT):
        if are_in(zone + 3, end, 2, DIGIT):
            return zone + 5
        if is_at(zone + 3, end, b':') and are_in(zone + 4, end, 2, DIGIT):
            return zone + 6
    return p


cdef inline const uint8_t* find_iso(
    const uint8_t* p, const uint8_t* end, Span* time
) noexcept nogil:
    """Behind the time that a line begins with, or that is behind a file's name."""
    cdef const uint8_t* behind
    cdef const uint8_t* start = skip_file(p, end)
    if start != NULL:
        start = start + 1 if is_at(start, end, b'[') else start
        behind = skip_iso(start, end)
        if behind != NULL:
            put(time, start, behind)
            return behind
    start = p + 1 if is_at(p, end, b'[') else p
    behind = skip_iso(start, end)
    if behind != NULL:
        put(time, start, behind)
    return behind


cdef inline bint begins_text(const uint8_t* p, const uint8_t* end) noexcept nogil:
    cdef Span time
    return find_iso(p, end, &time) != NULL


cdef inline bint scan_text(const uint8_t* p, const uint8_t* end, Span* slots) noexcept nogil:
    cdef const uint8_t* level
    cdef const uint8_t* behind
    p = find_iso(p, end, &slots[TIME])
    if p == NULL:
        return False
    if is_at(p, end, b']'):
        p += 1
    while p < end and (p[0] == b' ' or p[0] == b',' or p[0] == b':' or p[0] == b'|'
                       or p[0] == b'-'):
        p += 1
    level = skip_number(p, end)
    if is_at(level, end, b'['):
        level += 1
    behind = level + level_size(level, end)
    if behind > level:
        put(&slots[LEVEL], level, behind)
        if is_at(behind, end, b']'):
            behind += 1
        level = behind
        while behind < end and (behind[0] == b' ' or behind[0] == b':' or behind[0] == b'|'):
            behind += 1
        if behind > level:
            p = behind
        else:
            slots[LEVEL].size = -1
    put(&slots[MESSAGE], p, end)
    return True
