# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Syslog, in its three forms."""

from libc.stdint cimport uint8_t

from millstream.lines._slots cimport (
    CLOCK, DAY, HOST, MESSAGE, MONTH, PRIORITY, PROGRAM_NAME, TIME, is_month, read_day,
    read_priority, read_program, skip_program,
)
from millstream.lines._text cimport (
    DIGIT, Span, UPPER, are_in, find, is_at, is_in, is_text_at, put, read_word, skip,
)
from millstream.lines._times cimport is_clock


cdef inline bint begins_rfc5424(const uint8_t* p, const uint8_t* end) noexcept nogil:
    cdef Span priority
    p = read_priority(p, end, &priority)
    return p != NULL and is_text_at(p, end, b"1 ", 2)


cdef inline bint scan_rfc5424(
    const uint8_t* p, const uint8_t* end, Span* slots
) noexcept nogil:
    cdef Span unused
    p = read_priority(p, end, &slots[PRIORITY])
    if p == NULL or not is_text_at(p, end, b"1 ", 2):
        return False
    p = read_word(p + 2, end, &slots[TIME])
    p = read_word(p, end, &slots[HOST]) if p != NULL else NULL
    p = read_word(p, end, &slots[PROGRAM_NAME]) if p != NULL else NULL
    p = read_word(p, end, &unused) if p != NULL else NULL
    p = read_word(p, end, &unused) if p != NULL else NULL
    if p == NULL or p == end:
        return False
    if p[0] == b'[':
        # A bracket within the data is followed by something else than a blank.
        p = find(p, end, b']')
        while p != NULL and p + 1 < end and p[1] != b' ':
            p = find(p + 1, end, b']')
        if p == NULL:
            return False
    elif p[0] != b'-':
        return False
    p += 1
    put(&slots[MESSAGE], p + 1 if is_at(p, end, b' ') else p, end)
    return True


cdef inline bint begins_rfc3164(const uint8_t* p, const uint8_t* end) noexcept nogil:
    cdef Span unused
    if is_at(p, end, b'<'):
        p = read_priority(p, end, &unused)
        if p == NULL:
            return False
    if not is_month(p, end) or end - p < 14 or p[3] != b' ':
        return False
    p += 4
    # A day of one digit may be set right.
    if is_at(p, end, b' ') or are_in(p, end, 2, DIGIT):
        p += 1
    return (
        are_in(p, end, 1, DIGIT) and is_at(p + 1, end, b' ') and is_clock(p + 2, end)
        and is_at(p + 10, end, b' ')
    )


cdef inline bint scan_rfc3164(
    const uint8_t* p, const uint8_t* end, Span* slots
) noexcept nogil:
    if is_at(p, end, b'<'):
        p = read_priority(p, end, &slots[PRIORITY])
        if p == NULL:
            return False
    if not is_month(p, end):
        return False
    put(&slots[MONTH], p, p + 3)
    p = read_day(p + 3, end, &slots[DAY])
    if p == NULL or not is_clock(p, end) or not is_at(p + 8, end, b' '):
        return False
    put(&slots[CLOCK], p, p + 8)
    p = read_word(p + 9, end, &slots[HOST])
    if p == NULL:
        return False
    put(&slots[MESSAGE], read_program(p, end, &slots[PROGRAM_NAME]), end)
    return True


cdef inline bint is_rsyslog_head(Span clock, Span host) noexcept nogil:
    """Microseconds and an offset, and a word that is no level."""
    cdef Py_ssize_t at
    cdef const uint8_t* p = clock.at
    cdef const uint8_t* end = p + clock.size
    if clock.size != 21 or p[8] != b'.' or not are_in(p + 9, end, 6, DIGIT):
        return False
    if (p[15] != b'+' and p[15] != b'-') or not are_in(p + 16, end, 2, DIGIT):
        return False
    if p[18] != b':' or not are_in(p + 19, end, 2, DIGIT):
        return False
    for at in range(host.size):
        if is_in(host.at[at], UPPER):
            return False
    return host.size > 0


cdef inline bint begins_isosyslog(const uint8_t* p, const uint8_t* end) noexcept nogil:
    """What rsyslog writes into files since Debian 12.

    A program without a number could be any word, so the time must be as rsyslog writes it.
    """
    cdef Span clock, host
    cdef const uint8_t* behind
    if end - p < 12 or not are_in(p, end, 4, DIGIT) or p[4] != b'-' or p[7] != b'-':
        return False
    if not are_in(p + 5, end, 2, DIGIT) or not are_in(p + 8, end, 2, DIGIT) or p[10] != b'T':
        return False
    p = read_word(p + 11, end, &clock)
    p = read_word(p, end, &host) if p != NULL else NULL
    if p == NULL:
        return False
    behind = skip_program(p, end)
    if behind > p and is_text_at(behind, end, b": ", 2) and is_rsyslog_head(clock, host):
        return True
    if behind > p and is_at(behind, end, b'['):
        p = skip(behind + 1, end, DIGIT)
        return p > behind + 1 and is_text_at(p, end, b"]: ", 3)
    return is_text_at(p, end, b"kernel: ", 8) or is_text_at(p, end, b"systemd: ", 9)


cdef inline bint scan_isosyslog(
    const uint8_t* p, const uint8_t* end, Span* slots
) noexcept nogil:
    cdef const uint8_t* behind
    p = read_word(p, end, &slots[TIME])
    p = read_word(p, end, &slots[HOST]) if p != NULL else NULL
    if p == NULL:
        return False
    behind = skip_program(p, end)
    put(&slots[PROGRAM_NAME], p, behind)
    if behind == p:
        return False
    if is_at(behind, end, b'['):
        p = skip(behind + 1, end, DIGIT)
        if p == behind + 1 or not is_at(p, end, b']'):
            return False
        behind = p + 1
    if not is_text_at(behind, end, b": ", 2):
        return False
    put(&slots[MESSAGE], behind + 2, end)
    return True
