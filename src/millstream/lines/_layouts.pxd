# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Every layout by its number: which one a line is of, its scanner, and its time."""

from libc.stdint cimport int64_t, uint8_t

from millstream.lines._access cimport begins_access, scan_access
from millstream.lines._dated cimport (
    begins_errorlog, begins_labelled, begins_shortdate, begins_text, scan_errorlog, scan_labelled,
    scan_shortdate, scan_text,
)
from millstream.lines._fields cimport begins_logfmt
from millstream.lines._slots cimport CLOCK, DAY, MONTH, SHORT, TIME, YEAR
from millstream.lines._syslog cimport (
    begins_isosyslog, begins_rfc3164, begins_rfc5424, scan_isosyslog, scan_rfc3164, scan_rfc5424,
)
from millstream.lines._text cimport DIGIT, SPACE, Span, UPPER, is_at, is_in, skip
from millstream.lines._times cimport (
    Time, access_time, numeric_or_iso_time, short_time, words_time,
)

# Places in `layouts.KINDS`.
cdef enum:
    UNKNOWN, JSON, RFC5424, RFC3164, ISOSYSLOG, ACCESS, ERRORLOG, SHORTDATE
    LABELLED, TEXT, LOGFMT, CUSTOM, COMMON, COMBINED, PATTERN


cdef inline int detect(const uint8_t* p, const uint8_t* end) noexcept nogil:
    """In the order of `layouts.KINDS`; the first letter rules most of them out."""
    cdef const uint8_t* start = skip(p, end, SPACE)
    if is_at(start, end, b'{'):
        return JSON
    if p == end:
        return UNKNOWN
    if p[0] == b'<' and begins_rfc5424(p, end):
        return RFC5424
    if (p[0] == b'<' or is_in(p[0], UPPER)) and begins_rfc3164(p, end):
        return RFC3164
    if is_in(p[0], DIGIT) and begins_isosyslog(p, end):
        return ISOSYSLOG
    if begins_access(p, end):
        return ACCESS
    if p[0] == b'[' and begins_errorlog(p, end):
        return ERRORLOG
    if is_in(p[0], DIGIT) and begins_shortdate(p, end):
        return SHORTDATE
    if begins_labelled(p, end):
        return LABELLED
    if begins_text(p, end):
        return TEXT
    return LOGFMT if begins_logfmt(p, end) else UNKNOWN


cdef inline bint scan_layout(
    int kind, const uint8_t* p, const uint8_t* end, Span* slots
) noexcept nogil:
    if kind == ACCESS:
        return scan_access(p, end, slots)
    if kind == RFC5424:
        return scan_rfc5424(p, end, slots)
    if kind == RFC3164:
        return scan_rfc3164(p, end, slots)
    if kind == ISOSYSLOG:
        return scan_isosyslog(p, end, slots)
    if kind == ERRORLOG:
        return scan_errorlog(p, end, slots)
    if kind == SHORTDATE:
        return scan_shortdate(p, end, slots)
    if kind == LABELLED:
        return scan_labelled(p, end, slots)
    if kind == TEXT:
        return scan_text(p, end, slots)
    return False


cdef inline Time time_of(int kind, Span* slots, int64_t record_us, bint is_recorded) noexcept nogil:
    if kind == ACCESS:
        return access_time(slots[TIME])
    if kind == RFC3164 or kind == ERRORLOG:
        return words_time(
            slots[YEAR], slots[MONTH], slots[DAY], slots[CLOCK], record_us, is_recorded)
    if kind == SHORTDATE:
        return short_time(slots[SHORT])
    return numeric_or_iso_time(slots[TIME])
