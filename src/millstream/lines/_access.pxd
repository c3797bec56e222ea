# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Access logs of web servers, common and combined."""

from libc.stdint cimport uint8_t

from millstream.lines._slots cimport (
    ADDRESS, AGENT, METHOD, PATH, QUERY, REFERRER, REST, SIZE, STATUS, TIME, USER,
)
from millstream.lines._text cimport (
    DIGIT, Span, UPPER, are_in, find, find_quote, is_at, is_in, is_text_at, put, read_word, skip,
)


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
