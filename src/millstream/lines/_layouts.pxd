# cython: language_level=3
"""One scanner for each layout: where a line's parts are. `_scan_pure` has them as expressions.

`begins_x` tells whether a line is of the layout, from its beginning. `scan_x` fills slots and
tells whether the whole line is as the layout says; after a no the slots are not to be used.
"""

from libc.stdint cimport uint8_t
from libc.string cimport memcmp

from millstream.lines._text cimport (
    DIGIT, LETTER, LOWER, NAME, PROGRAM, SPACE, Span, UPPER, WORD, are_in, find, find_quote, is_at,
    is_in, is_text_at, put, read_word, skip, skip_blanks, skip_not,
)
from millstream.lines._times cimport begins_iso, is_clock

# The first sixteen are in the order of `layouts.ALIASES`.
cdef enum:
    TIME, HOST, SERVICE, PROGRAM_NAME, ADDRESS, USER, METHOD, PATH, QUERY, STATUS, SIZE, DURATION
    LEVEL, MESSAGE, REFERRER, AGENT
    PRIORITY, MONTH, DAY, CLOCK, YEAR, SHORT, REST
    SLOTS

cdef enum:
    FILE_NAME_MAX = 100
    FILE_END_MAX = 60
    LABEL_MAX = 100
    PROGRAM_MAX = 200


# -- parts that layouts share ----------------------------------------------------------------


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


# -- syslog ----------------------------------------------------------------------------------


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


cdef inline bint begins_isosyslog(const uint8_t* p, const uint8_t* end) noexcept nogil:
    """What rsyslog writes into files since Debian 12."""
    cdef Span unused
    cdef const uint8_t* behind
    if end - p < 12 or not are_in(p, end, 4, DIGIT) or p[4] != b'-' or p[7] != b'-':
        return False
    if not are_in(p + 5, end, 2, DIGIT) or not are_in(p + 8, end, 2, DIGIT) or p[10] != b'T':
        return False
    p = read_word(p + 11, end, &unused)
    p = read_word(p, end, &unused) if p != NULL else NULL
    if p == NULL:
        return False
    behind = skip_program(p, end)
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


# -- access logs -----------------------------------------------------------------------------


cdef inline bint begins_access(const uint8_t* p, const uint8_t* end) noexcept nogil:
    cdef Span unused
    p = read_word(p, end, &unused)
    # The day is never far, but words may be long.
    p = read_word(p, end, &unused) if p != NULL else NULL
    p = read_word(p, end, &unused) if p != NULL else NULL
    return (
        p != NULL and is_at(p, end, b'[') and are_in(p + 1, end, 2, DIGIT)
        and is_at(p + 3, end, b'/')
    )


cdef inline const uint8_t* read_request(
    const uint8_t* p, const uint8_t* end, Span* slots
) noexcept nogil:
    """`GET /path?query HTTP/1.1`: at the quote behind it."""
    cdef const uint8_t* start = p
    cdef const uint8_t* behind = skip(p, end, UPPER)
    if not 3 <= behind - start <= 20 or not is_at(behind, end, b' '):
        return NULL
    put(&slots[METHOD], start, behind)
    start = p = behind + 1
    while p < end and p[0] != b' ' and p[0] != b'"' and p[0] != b'?':
        p += 1
    put(&slots[PATH], start, p)
    if is_at(p, end, b'?'):
        start = p + 1
        while p < end and p[0] != b' ' and p[0] != b'"':
            p += 1
        put(&slots[QUERY], start, p)
    if is_text_at(p, end, b" HTTP/", 6):
        start = p = p + 6
        while p < end and (is_in(p[0], DIGIT) or p[0] == b'.'):
            p += 1
        if p == start:
            return NULL
    return p if is_at(p, end, b'"') else NULL


cdef inline bint read_result(const uint8_t* p, const uint8_t* end, Span* slots) noexcept nogil:
    """What is behind the request's quote, to the end of the line."""
    cdef const uint8_t* behind
    cdef const uint8_t* referrer_end
    cdef const uint8_t* agent_end
    if not is_at(p, end, b' ') or not are_in(p + 1, end, 3, DIGIT) or not is_at(p + 4, end, b' '):
        return False
    put(&slots[STATUS], p + 1, p + 4)
    p += 5
    behind = p + 1 if is_at(p, end, b'-') else skip(p, end, DIGIT)
    put(&slots[SIZE], p, behind)
    if behind == p or (behind < end and behind[0] != b' '):
        return False
    if behind == end:
        return True
    if is_text_at(behind, end, b" \"", 2):
        referrer_end = find_quote(behind + 2, end)
        if referrer_end != NULL and is_text_at(referrer_end, end, b"\" \"", 3):
            agent_end = find_quote(referrer_end + 3, end)
            if agent_end != NULL and (agent_end + 1 == end or agent_end[1] == b' '):
                put(&slots[REFERRER], behind + 2, referrer_end)
                put(&slots[AGENT], referrer_end + 3, agent_end)
                if agent_end + 1 < end:
                    put(&slots[REST], agent_end + 2, end)
                return True
    put(&slots[REST], behind + 1, end)
    return True


cdef inline bint scan_access(
    const uint8_t* p, const uint8_t* end, Span* slots
) noexcept nogil:
    cdef const uint8_t* behind
    cdef Span unused
    if end > p and (end - 1)[0] == b'\n':
        end -= 1
    if end > p and (end - 1)[0] == b'\r':
        end -= 1
    p = read_word(p, end, &slots[ADDRESS])
    p = read_word(p, end, &unused) if p != NULL else NULL
    p = read_word(p, end, &slots[USER]) if p != NULL else NULL
    if p == NULL or not is_at(p, end, b'['):
        return False
    behind = find(p, end, b']')
    if behind == NULL or not 20 <= behind - p - 1 <= 40:
        return False
    put(&slots[TIME], p + 1, behind)
    if not is_text_at(behind, end, b"] \"", 3):
        return False
    p = behind + 3
    behind = read_request(p, end, slots)
    if behind != NULL and read_result(behind + 1, end, slots):
        return True
    # Whatever came instead of a request.
    slots[METHOD].size = slots[PATH].size = slots[QUERY].size = -1
    behind = find_quote(p, end)
    return behind != NULL and read_result(behind + 1, end, slots)


# -- text with a time ------------------------------------------------------------------------


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


# -- logfmt ----------------------------------------------------------------------------------


cdef inline bint begins_logfmt(const uint8_t* p, const uint8_t* end) noexcept nogil:
    cdef const uint8_t* behind = skip(p, end, NAME)
    return (
        behind > p and is_at(behind, end, b'=') and behind + 1 < end
        and not is_in(behind[1], SPACE)
    )


cdef inline const uint8_t* next_pair(
    const uint8_t* p, const uint8_t* end, Span* name, Span* value, bint* is_quoted
) noexcept nogil:
    """Behind the next `name=value` or `name="value"`, or NULL if there is none."""
    cdef const uint8_t* behind
    cdef const uint8_t* quote
    while p < end:
        if not is_in(p[0], NAME):
            p += 1
            continue
        behind = skip(p, end, NAME)
        if not is_at(behind, end, b'='):
            p = behind
            continue
        put(name, p, behind)
        p = behind + 1
        if is_at(p, end, b'"'):
            quote = find_quote(p + 1, end)
            if quote != NULL:
                put(value, p + 1, quote)
                is_quoted[0] = True
                return quote + 1
        behind = p
        while behind < end and not is_in(behind[0], SPACE) and behind[0] != b'"':
            behind += 1
        put(value, p, behind)
        is_quoted[0] = False
        return behind
    return NULL
