# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Lines into columns, compiled. `_scan_pure` is the same in Python.

A line is read in place: its layout's scanner notes where the parts are, and only the parts
that make a column that is wanted are copied, into buffers laid out as Arrow has them.

Bytes come from strangers: nothing is read before it is known to be there.
"""

import numpy as np

from millstream.lines import arrays, layouts
from millstream.lines.schema import SCANNED

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free, qsort, realloc
from libc.string cimport memchr, memcmp, memcpy, memset

from millstream.lines._json cimport skip_nested, skip_scalar, skip_space, skip_string, unescape
from millstream.lines._layouts cimport (
    ADDRESS, AGENT, CLOCK, DAY, DURATION, HOST, LEVEL, MESSAGE, METHOD, MONTH, PATH, PRIORITY,
    PROGRAM_NAME, QUERY, REFERRER, REST, SERVICE, SHORT, SIZE, SLOTS, STATUS, TIME, USER, YEAR,
    begins_access, begins_errorlog, begins_isosyslog, begins_labelled, begins_logfmt,
    begins_rfc3164, begins_rfc5424, begins_shortdate, begins_text, next_pair, scan_access,
    scan_errorlog, scan_isosyslog, scan_labelled, scan_rfc3164, scan_rfc5424, scan_shortdate,
    scan_text,
)
from millstream.lines._text cimport (
    DIGIT, SPACE, UPPER, Span, is_at, is_in, ms_classes_begin, ms_is_utf8, put, read_integer,
    skip, stripped,
)
from millstream.lines._times cimport (
    Time, access_time, numeric_or_iso_time, short_time, words_time,
)

cdef extern from "Python.h":
    double PyOS_string_to_double(const char* text, char** end, object overflow) except? -1.0

cdef extern from *:
    """
    static const char *ms_severities[] = {"emergency", "alert", "critical", "error", "warning",
                                          "notice", "info", "debug"};
    static const double ms_tens[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10,
                                     1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
                                     1e21, 1e22};
    """
    const char** ms_severities
    const double* ms_tens

ms_classes_begin()

NAME = "compiled"

# Places in `layouts.KINDS`.
cdef enum:
    UNKNOWN, JSON, RFC5424, RFC3164, ISOSYSLOG, ACCESS, ERRORLOG, SHORTDATE
    LABELLED, TEXT, LOGFMT, CUSTOM, COMMON, COMBINED

# Places in `layouts.FAULTS`.
cdef enum:
    NO_FAULT, EMPTY, TOO_LONG, NOT_UTF8, CONTROL

cdef enum:
    LINE_BYTES_MAX = 65536
    ARROW_BYTES_MAX = 0x7FFFFFFF
    # Up to here every pair of fields is compared, above they are sorted.
    FEW_PAIRS = 32

# Columns of text, in this order; then the numbers.
cdef enum:
    C_HOST, C_SERVICE, C_PROGRAM, C_ADDRESS, C_USER, C_VISITOR, C_METHOD, C_PATH, C_QUERY
    C_LEVEL, C_REFERRER, C_AGENT, C_MESSAGE
    TEXTS
    C_STATUS = TEXTS
    C_SIZE, C_DURATION, C_FIELDS, C_GAUGES
    COLUMNS

# The slot that a column of text is a copy of.
cdef int[TEXTS] SLOT_OF
SLOT_OF[:] = [HOST, SERVICE, PROGRAM_NAME, ADDRESS, USER, USER, METHOD, PATH, QUERY, LEVEL,
              REFERRER, AGENT, MESSAGE]

# The slots that a column is made from.
NEEDS = {
    "visitor": ("user", "address", "agent"),
    "size_bytes": ("size",),
    "duration_ms": ("duration",),
}

assert tuple(SCANNED) == (
    "host", "service", "program", "address", "user", "visitor", "method", "path", "query", "level",
    "referrer", "agent", "message", "status", "size_bytes", "duration_ms", "fields", "gauges",
)
assert layouts.KINDS.index("combined") == COMBINED
assert layouts.FAULTS.index("control characters") == CONTROL
assert layouts.LINE_BYTES_MAX == LINE_BYTES_MAX


# -- memory ------------------------------------------------------------------------------------


cdef struct Buffer:
    uint8_t* data
    size_t size
    size_t room


cdef inline bint reserve(Buffer* buffer, size_t more) noexcept nogil:
    """Room for `more` bytes; no when there is no memory."""
    cdef size_t room
    cdef uint8_t* data
    if buffer.size + more <= buffer.room:
        return True
    room = buffer.room * 2 if buffer.room else 4096
    while room < buffer.size + more:
        room *= 2
    data = <uint8_t*> realloc(buffer.data, room)
    if data == NULL:
        return False
    buffer.data = data
    buffer.room = room
    return True


cdef inline bint append(Buffer* buffer, const void* data, size_t size) noexcept nogil:
    if not reserve(buffer, size):
        return False
    memcpy(buffer.data + buffer.size, data, size)
    buffer.size += size
    return True


cdef inline bint append_int32(Buffer* buffer, int32_t number) noexcept nogil:
    return append(buffer, &number, 4)


cdef bytes taken(Buffer* buffer):
    """What a buffer holds; then it is empty, and keeps its memory."""
    data = PyBytes_FromStringAndSize(<char*> buffer.data, buffer.size)
    buffer.size = 0
    return data


# A column of text in the making.
cdef struct Texts:
    Buffer validity
    Buffer ends
    Buffer data


cdef struct Numbers:
    Buffer validity
    Buffer data


cdef inline bint set_bit(Buffer* validity, size_t row, bint is_there) noexcept nogil:
    if row % 8 == 0:
        if not reserve(validity, 1):
            return False
        validity.data[row // 8] = 0
        validity.size = row // 8 + 1
    if is_there:
        validity.data[row // 8] |= <uint8_t> (1 << (row % 8))
    return True


cdef inline bint add_text(Texts* column, size_t row, Span text) noexcept nogil:
    """A text, or null where its size is below 0."""
    if text.size > 0 and not append(&column.data, text.at, text.size):
        return False
    return (
        set_bit(&column.validity, row, text.size >= 0)
        and column.data.size <= ARROW_BYTES_MAX
        and append_int32(&column.ends, <int32_t> column.data.size)
    )


cdef void free_texts(Texts* column):
    free(column.validity.data)
    free(column.ends.data)
    free(column.data.data)


# -- what comes in -----------------------------------------------------------------------------


# An Arrow column of bytes or text.
cdef struct Input:
    const uint8_t* validity
    const int32_t* ends
    const uint8_t* data
    Py_ssize_t offset
    Py_ssize_t data_size


cdef const uint8_t* address_of(buffer, Py_ssize_t bytes_min) except? NULL:
    if buffer is None:
        return NULL
    if buffer.size < bytes_min:
        raise ValueError("a column is shorter than its rows")
    return <const uint8_t*> <uintptr_t> buffer.address


cdef Input input_of(array) except *:
    """Where its rows are; the array must be kept meanwhile."""
    cdef Input column
    cdef Py_ssize_t behind = array.offset + len(array)
    validity, ends, data = array.buffers()
    column.offset = array.offset
    column.validity = address_of(validity, (behind + 7) // 8)
    column.ends = <const int32_t*> address_of(ends, (behind + 1) * 4)
    column.data = address_of(data, 0)
    column.data_size = 0 if data is None else data.size
    if column.ends == NULL:
        raise ValueError("a column has no ends")
    return column


cdef inline bint is_set(const uint8_t* validity, Py_ssize_t place) noexcept nogil:
    return validity == NULL or validity[place // 8] >> (place % 8) & 1


cdef inline bint value_at(Input* column, Py_ssize_t row, Span* value) noexcept nogil:
    """No where the column is not as Arrow says."""
    cdef Py_ssize_t place = column.offset + row
    cdef int32_t start = column.ends[place], end = column.ends[place + 1]
    value.at = column.data
    value.size = -1
    if not is_set(column.validity, place):
        return True
    if start < 0 or end < start or end > column.data_size:
        return False
    value.at = column.data + start
    value.size = end - start
    return True


# -- numbers -----------------------------------------------------------------------------------


cdef double read_slowly(Span text) noexcept with gil:
    cdef double number
    copied = PyBytes_FromStringAndSize(<const char*> text.at, text.size)
    try:
        number = PyOS_string_to_double(PyBytes_AS_STRING(copied), NULL, OverflowError)
    except (ValueError, OverflowError):
        return float("inf")
    return number


cdef bint read_double(Span text, double* number) noexcept nogil:
    """A finite number; neither `NaN` nor `Infinity` is one."""
    cdef const uint8_t* p
    cdef const uint8_t* end
    cdef uint64_t digits = 0
    cdef Py_ssize_t count = 0, fraction = 0, exponent = 0
    cdef bint is_negative, is_small
    if text.size <= 0:
        return False
    text = stripped(text)
    p = text.at
    end = p + text.size
    is_negative = is_at(p, end, b'-')
    if is_negative or is_at(p, end, b'+'):
        p += 1
    while p < end and is_in(p[0], DIGIT):
        if count < 19:
            digits = digits * 10 + (p[0] - 48)
        count += 1
        p += 1
    if is_at(p, end, b'.'):
        p += 1
        while p < end and is_in(p[0], DIGIT):
            if count < 19:
                digits = digits * 10 + (p[0] - 48)
            count += 1
            fraction += 1
            p += 1
    if count == 0:
        return False
    if is_at(p, end, b'e') or is_at(p, end, b'E'):
        p += 1
        is_small = is_at(p, end, b'-')
        if is_small or is_at(p, end, b'+'):
            p += 1
        if not 1 <= end - p <= 6 or skip(p, end, DIGIT) != end:
            return False
        while p < end:
            exponent = exponent * 10 + (p[0] - 48)
            p += 1
        if is_small:
            exponent = -exponent
    if p != end:
        return False
    exponent -= fraction
    # Both are exact then, and so is the result but for one rounding.
    if count <= 19 and digits <= <uint64_t> 1 << 53 and -22 <= exponent <= 22:
        number[0] = <double> digits
        if exponent < 0:
            number[0] /= ms_tens[-exponent]
        else:
            number[0] *= ms_tens[exponent]
        if is_negative:
            number[0] = -number[0]
        return True
    number[0] = read_slowly(text)
    return number[0] - number[0] == 0


cdef bint read_request_ms(Span rest, double* number) noexcept nogil:
    """Some servers write the time a request took, in seconds, at the end of the line."""
    cdef const uint8_t* p
    cdef const uint8_t* end = rest.at + rest.size
    if rest.size <= 0:
        return False
    p = skip(rest.at, end, DIGIT)
    if p == rest.at or not is_at(p, end, b'.') or p + 1 == end or skip(p + 1, end, DIGIT) != end:
        return False
    if not read_double(rest, number):
        return False
    number[0] *= 1000
    return number[0] - number[0] == 0


# -- lines -------------------------------------------------------------------------------------


cdef int fault_of(Span value) noexcept nogil:
    if value.size <= 0:
        return EMPTY
    if value.size > LINE_BYTES_MAX:
        return TOO_LONG
    if not ms_is_utf8(value.at, value.at + value.size):
        return NOT_UTF8
    return CONTROL if memchr(value.at, 1, value.size) != NULL else NO_FAULT


cdef int detect(const uint8_t* p, const uint8_t* end) noexcept nogil:
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


cdef bint scan_layout(
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


cdef Time time_of(int kind, Span* slots, int64_t record_us, bint is_recorded) noexcept nogil:
    if kind == ACCESS:
        return access_time(slots[TIME])
    if kind == RFC3164 or kind == ERRORLOG:
        return words_time(
            slots[YEAR], slots[MONTH], slots[DAY], slots[CLOCK], record_us, is_recorded)
    if kind == SHORTDATE:
        return short_time(slots[SHORT])
    return numeric_or_iso_time(slots[TIME])


# -- fields ------------------------------------------------------------------------------------


# A name that a field may have, and what it means.
cdef struct Known:
    const uint8_t* name
    Py_ssize_t size
    # -1: no slot, no gauge.
    int slot
    int priority
    int gauge


cdef struct Pair:
    Span name
    Span value
    int32_t place
    bint is_dropped


cdef inline bint is_same(Span one, Span other) noexcept nogil:
    return one.size == other.size and memcmp(one.at, other.at, one.size) == 0


cdef int by_name(const void* one, const void* other) noexcept nogil:
    """By name, and those of one name as they came."""
    cdef Pair* a = (<Pair**> one)[0]
    cdef Pair* b = (<Pair**> other)[0]
    cdef int order
    if a.name.size != b.name.size:
        return -1 if a.name.size < b.name.size else 1
    order = memcmp(a.name.at, b.name.at, a.name.size)
    if order:
        return order
    return -1 if a.place < b.place else 1


cdef class Scanner:
    """Makes the wanted columns of one batch after another."""

    cdef bint[COLUMNS] _is_wanted
    cdef Texts[TEXTS] _texts
    cdef Numbers _status
    cdef Numbers _size
    cdef Numbers _duration
    cdef Numbers _gauges
    cdef Numbers _time
    cdef Buffer _kinds
    cdef Buffer _faults
    cdef Buffer _is_local
    # The map of all fields.
    cdef Buffer _field_validity
    cdef Buffer _field_ends
    cdef Texts _field_names
    cdef Texts _field_values
    cdef size_t _field_count
    # Of the line at hand.
    cdef Span[SLOTS] _slots
    cdef int[SLOTS] _priorities
    cdef Buffer _pairs
    cdef Buffer _order
    cdef Buffer _unescaped
    # Open addressing by length and two letters: the names are ours, and few.
    cdef Known* _known
    cdef size_t _known_mask
    cdef list _names
    cdef int _gauge_count
    cdef double* _gauge_values
    cdef bint* _is_gauge_there

    def __cinit__(self, wanted, gauges):
        cdef size_t room = 64
        for place, name in enumerate(SCANNED):
            self._is_wanted[place] = name in wanted
        self._gauge_count = len(gauges)
        self._gauge_values = <double*> calloc(self._gauge_count + 1, sizeof(double))
        self._is_gauge_there = <bint*> calloc(self._gauge_count + 1, sizeof(bint))
        needed = {"time"}.union(*(NEEDS.get(name, (name,)) for name in wanted))
        names = {}
        for slot, (column, aliases) in enumerate(layouts.ALIASES.items()):
            for priority, alias in enumerate(aliases):
                if column in needed:
                    names[alias.encode()] = [slot, priority, -1]
        if "gauges" in wanted:
            for place, gauge in enumerate(gauges):
                names.setdefault(gauge.encode(), [-1, 0, -1])[2] = place
        while room < 4 * <size_t> len(names):
            room *= 2
        self._known = <Known*> calloc(room, sizeof(Known))
        if self._known == NULL or self._gauge_values == NULL or self._is_gauge_there == NULL:
            raise MemoryError("no memory for a scanner")
        self._known_mask = room - 1
        self._names = list(names)
        for name, (slot, priority, gauge) in names.items():
            self._learn(name, slot, priority, gauge)

    def __dealloc__(self):
        cdef int i
        for i in range(TEXTS):
            free_texts(&self._texts[i])
        free_texts(&self._field_names)
        free_texts(&self._field_values)
        free(self._status.validity.data)
        free(self._status.data.data)
        free(self._size.validity.data)
        free(self._size.data.data)
        free(self._duration.validity.data)
        free(self._duration.data.data)
        free(self._gauges.validity.data)
        free(self._gauges.data.data)
        free(self._time.validity.data)
        free(self._time.data.data)
        free(self._kinds.data)
        free(self._faults.data)
        free(self._is_local.data)
        free(self._field_validity.data)
        free(self._field_ends.data)
        free(self._pairs.data)
        free(self._order.data)
        free(self._unescaped.data)
        free(self._known)
        free(self._gauge_values)
        free(self._is_gauge_there)

    # -- fields by name ------------------------------------------------------------------------

    cdef size_t _place(self, const uint8_t* name, Py_ssize_t size) noexcept nogil:
        return (<size_t> name[0] * 7 + <size_t> name[size - 1] * 31 + <size_t> size) & (
            self._known_mask)

    cdef int _learn(self, bytes name, int slot, int priority, int gauge) except -1:
        cdef const uint8_t* text = <const uint8_t*> PyBytes_AS_STRING(name)
        cdef size_t place
        if not name:
            return 0
        place = self._place(text, len(name))
        while self._known[place].name != NULL:
            place = (place + 1) & self._known_mask
        self._known[place] = Known(text, len(name), slot, priority, gauge)
        return 0

    cdef inline void _note(self, Span name, Span value) noexcept nogil:
        """A field that is not null: into its slot and its gauge."""
        cdef size_t place
        cdef Known* known
        if name.size == 0:
            return
        place = self._place(name.at, name.size)
        while self._known[place].name != NULL:
            known = &self._known[place]
            if known.size == name.size and memcmp(known.name, name.at, name.size) == 0:
                if known.slot >= 0 and known.priority <= self._priorities[known.slot]:
                    self._priorities[known.slot] = known.priority
                    self._slots[known.slot] = value
                if known.gauge >= 0:
                    self._is_gauge_there[known.gauge] = read_double(
                        value, &self._gauge_values[known.gauge])
                return
            place = (place + 1) & self._known_mask

    cdef inline bint _add_pair(self, Span name, Span value) noexcept nogil:
        """A field, null where the value's size is below 0; no when there is no memory."""
        cdef Pair pair
        if value.size >= 0:
            self._note(name, value)
        if not self._is_wanted[C_FIELDS]:
            return True
        pair.name = name
        pair.value = value
        pair.place = <int32_t> (self._pairs.size // sizeof(Pair))
        pair.is_dropped = False
        return append(&self._pairs, &pair, sizeof(Pair))

    cdef void _forget(self) noexcept nogil:
        """Nothing is known of a line."""
        cdef int i
        for i in range(SLOTS):
            self._slots[i].size = -1
            self._priorities[i] = 127
        memset(self._is_gauge_there, 0, self._gauge_count * sizeof(bint))
        self._pairs.size = 0

    cdef int _read_json(self, const uint8_t* p, const uint8_t* end) noexcept nogil:
        """1 if the line is one JSON object, 0 if not, -1 when there is no memory."""
        cdef Span name, value
        cdef const uint8_t* behind
        cdef uint8_t* free_at
        cdef bint is_escaped
        # A text gets no longer.
        self._unescaped.size = 0
        if not reserve(&self._unescaped, end - p):
            return -1
        free_at = self._unescaped.data
        p = skip_space(p, end)
        if not is_at(p, end, b'{'):
            return 0
        p = skip_space(p + 1, end)
        if is_at(p, end, b'}'):
            return skip_space(p + 1, end) == end
        while True:
            behind = skip_string(p, end, &is_escaped)
            if behind == NULL:
                return 0
            put(&name, p + 1, behind - 1)
            if is_escaped:
                name = unescape(p + 1, behind - 1, free_at)
                free_at += name.size
            p = skip_space(behind, end)
            if not is_at(p, end, b':'):
                return 0
            p = skip_space(p + 1, end)
            if is_at(p, end, b'"'):
                behind = skip_string(p, end, &is_escaped)
                if behind == NULL:
                    return 0
                put(&value, p + 1, behind - 1)
                if is_escaped:
                    value = unescape(p + 1, behind - 1, free_at)
                    free_at += value.size
            else:
                if is_at(p, end, b'{') or is_at(p, end, b'['):
                    behind = skip_nested(p, end)
                else:
                    behind = skip_scalar(p, end)
                if behind == NULL:
                    return 0
                put(&value, p, behind)
                if p[0] == b'n':
                    value.size = -1
            if not self._add_pair(name, value):
                return -1
            p = skip_space(behind, end)
            if is_at(p, end, b'}'):
                return skip_space(p + 1, end) == end
            if not is_at(p, end, b','):
                return 0
            p = skip_space(p + 1, end)

    cdef int _read_logfmt(self, const uint8_t* p, const uint8_t* end) noexcept nogil:
        cdef Span name, value
        cdef const uint8_t* at
        cdef const uint8_t* behind
        cdef uint8_t* free_at
        cdef bint is_quoted = False
        self._unescaped.size = 0
        if not reserve(&self._unescaped, end - p):
            return -1
        free_at = self._unescaped.data
        p = next_pair(p, end, &name, &value, &is_quoted)
        while p != NULL:
            if is_quoted and memchr(value.at, b'\\', value.size) != NULL:
                at = value.at
                behind = value.at + value.size
                value.at = free_at
                while at < behind:
                    if at[0] == b'\\' and at + 1 < behind:
                        at += 1
                    free_at[0] = at[0]
                    free_at += 1
                    at += 1
                value.size = free_at - value.at
            if not self._add_pair(name, value):
                return -1
            p = next_pair(p, end, &name, &value, &is_quoted)
        return 1

    cdef int _read_custom(
        self, Input* names, Input* values, int32_t start, int32_t end
    ) noexcept nogil:
        cdef Span name, value
        cdef int32_t place
        for place in range(start, end):
            if not value_at(names, place, &name) or not value_at(values, place, &value):
                return -1
            if name.size >= 0 and not self._add_pair(name, value):
                return -1
        return 1

    cdef bint _add_fields(self, size_t row, bint is_there) noexcept nogil:
        """The map of a line: names as they came first, with the value that came last."""
        cdef Pair* pairs = <Pair*> self._pairs.data
        cdef Py_ssize_t count = self._pairs.size // sizeof(Pair)
        cdef Py_ssize_t i
        if is_there:
            if not self._drop_repeated(pairs, count):
                return False
            for i in range(count):
                if pairs[i].is_dropped:
                    continue
                if not (add_text(&self._field_names, self._field_count, pairs[i].name)
                        and add_text(&self._field_values, self._field_count, pairs[i].value)):
                    return False
                self._field_count += 1
        return (
            set_bit(&self._field_validity, row, is_there)
            and self._field_count <= ARROW_BYTES_MAX
            and append_int32(&self._field_ends, <int32_t> self._field_count)
        )

    cdef bint _drop_repeated(self, Pair* pairs, Py_ssize_t count) noexcept nogil:
        cdef Py_ssize_t i, j
        cdef Pair** order
        if count <= FEW_PAIRS:
            for i in range(count):
                if pairs[i].is_dropped:
                    continue
                for j in range(i + 1, count):
                    if is_same(pairs[i].name, pairs[j].name):
                        pairs[i].value = pairs[j].value
                        pairs[j].is_dropped = True
            return True
        self._order.size = 0
        if not reserve(&self._order, count * sizeof(Pair*)):
            return False
        order = <Pair**> self._order.data
        for i in range(count):
            order[i] = &pairs[i]
        qsort(order, count, sizeof(Pair*), by_name)
        i = 0
        while i < count:
            j = i + 1
            while j < count and is_same(order[i].name, order[j].name):
                order[i].value = order[j].value
                order[j].is_dropped = True
                j += 1
            i = j
        return True

    # -- rows ----------------------------------------------------------------------------------

    cdef bint _add_numbers(self, size_t row) noexcept nogil:
        cdef int64_t whole = 0
        cdef double number = 0
        cdef bint is_there
        cdef int i
        if self._is_wanted[C_STATUS]:
            is_there = read_integer(self._slots[STATUS], 32, &whole)
            if not (set_bit(&self._status.validity, row, is_there)
                    and append_int32(&self._status.data, <int32_t> whole if is_there else 0)):
                return False
        if self._is_wanted[C_SIZE]:
            whole = 0
            is_there = read_integer(self._slots[SIZE], 64, &whole)
            if not (set_bit(&self._size.validity, row, is_there)
                    and append(&self._size.data, &whole, 8)):
                return False
        if self._is_wanted[C_DURATION]:
            is_there = (read_double(self._slots[DURATION], &number)
                        or read_request_ms(self._slots[REST], &number))
            if not is_there:
                number = 0
            if not (set_bit(&self._duration.validity, row, is_there)
                    and append(&self._duration.data, &number, 8)):
                return False
        if self._is_wanted[C_GAUGES]:
            for i in range(self._gauge_count):
                is_there = self._is_gauge_there[i]
                number = self._gauge_values[i] if is_there else 0
                if not (set_bit(&self._gauges.validity, row * self._gauge_count + i, is_there)
                        and append(&self._gauges.data, &number, 8)):
                    return False
        return True

    cdef bint _add_level(self, size_t row) noexcept nogil:
        cdef Texts* column = &self._texts[C_LEVEL]
        cdef Span level = self._slots[LEVEL]
        cdef size_t start = column.data.size
        cdef int64_t priority
        cdef Py_ssize_t i
        if level.size < 0 and read_integer(self._slots[PRIORITY], 32, &priority):
            level.at = <const uint8_t*> ms_severities[priority % 8]
            level.size = 0
            while level.at[level.size]:
                level.size += 1
        if not add_text(column, row, level):
            return False
        for i in range(start, column.data.size):
            if is_in(column.data.data[i], UPPER):
                column.data.data[i] |= 0x20
        return True

    cdef bint _add_visitor(self, size_t row) noexcept nogil:
        """What a visitor is told by: the user, else the address with the agent."""
        cdef Texts* column = &self._texts[C_VISITOR]
        cdef Span agent = self._slots[AGENT]
        if self._slots[USER].size >= 0 or self._slots[ADDRESS].size < 0 or agent.size < 0:
            return add_text(
                column, row,
                self._slots[USER] if self._slots[USER].size >= 0 else self._slots[ADDRESS])
        return (
            append(&column.data, self._slots[ADDRESS].at, self._slots[ADDRESS].size)
            and append(&column.data, b"|", 1)
            and add_text(column, row, agent)
        )

    cdef bint _add_texts(self, size_t row, Span source) noexcept nogil:
        cdef const uint8_t* slash
        cdef int i
        if self._slots[HOST].size < 0:
            slash = NULL
            if source.size > 0:
                slash = <const uint8_t*> memchr(source.at, b'/', source.size)
            put(&self._slots[HOST], source.at, slash if slash != NULL else source.at + source.size)
        for i in range(TEXTS):
            if not self._is_wanted[i]:
                continue
            if i == C_LEVEL:
                if not self._add_level(row):
                    return False
            elif i == C_VISITOR:
                if not self._add_visitor(row):
                    return False
            elif not add_text(&self._texts[i], row, self._slots[SLOT_OF[i]]):
                return False
        return True

    cdef bint _add_row(
        self, size_t row, int8_t kind, int8_t fault, Span source, Time time, bint has_fields
    ) noexcept nogil:
        cdef uint8_t is_local = time.is_there and time.is_local
        if not time.is_there:
            time.micros = 0
        return (
            append(&self._kinds, &kind, 1)
            and append(&self._faults, &fault, 1)
            and append(&self._is_local, &is_local, 1)
            and set_bit(&self._time.validity, row, time.is_there)
            and append(&self._time.data, &time.micros, 8)
            and self._add_texts(row, source)
            and self._add_numbers(row)
            and (not self._is_wanted[C_FIELDS] or self._add_fields(row, has_fields))
        )

    cdef int _read(
        self, int kind, const uint8_t* p, const uint8_t* end, Input* names, Input* values,
        int32_t start, int32_t behind
    ) noexcept nogil:
        """Fill the slots: 1 if the line is of its kind, 0 if not, -1 when there is no memory."""
        cdef int found
        if kind == JSON:
            found = self._read_json(p, end)
        elif kind == LOGFMT:
            found = self._read_logfmt(p, end)
        elif kind == CUSTOM:
            found = self._read_custom(names, values, start, behind) if start >= 0 else 0
        else:
            found = scan_layout(kind, p, end, self._slots)
        if found == 0:
            self._forget()
        return found

    cdef void _drop_nothings(self) noexcept nogil:
        """Empty texts and `-` say nothing."""
        cdef int i
        for i in range(SLOTS):
            if self._slots[i].size == 0 or (
                    self._slots[i].size == 1 and self._slots[i].at[0] == b'-'):
                self._slots[i].size = -1

    cdef bint _scan_row(
        self, size_t row, Span value, Span source, int64_t record_us, bint is_recorded, int given,
        Input* names, Input* values, int32_t start, int32_t behind
    ) noexcept nogil:
        cdef int fault = fault_of(value)
        cdef int kind = given
        cdef int found = 0
        cdef bint has_fields
        cdef const uint8_t* end = value.at + (value.size if value.size > 0 else 0)
        cdef Time time
        time.is_there = time.is_local = False
        self._forget()
        if fault:
            if given < 0:
                kind = UNKNOWN
            return self._add_row(row, kind, fault, source, time, False)
        while end > value.at and (end - 1)[0] == b' ':
            end -= 1
        if given < 0 or given == TEXT:
            kind = detect(value.at, end)
            if given == TEXT and kind != ERRORLOG and kind != SHORTDATE and kind != LABELLED:
                kind = TEXT
        if kind != UNKNOWN:
            found = self._read(kind, value.at, end, names, values, start, behind)
            if found < 0:
                return False
        has_fields = found and (kind == JSON or kind == LOGFMT or kind == CUSTOM)
        if kind == ACCESS and found:
            given = COMBINED if self._slots[AGENT].size >= 0 else COMMON
        else:
            given = kind
        self._drop_nothings()
        if kind != UNKNOWN:
            time = time_of(kind, self._slots, record_us, is_recorded)
        return self._add_row(row, given, NO_FAULT, source, time, has_fields)

    # -- batches -------------------------------------------------------------------------------

    def faults(self, values):
        """Of each value the place in `layouts.FAULTS`."""
        cdef Py_ssize_t count = len(values), row
        cdef Input column
        cdef Span value
        found = np.zeros(count, np.int8)
        cdef int8_t[::1] out = found
        if count == 0:
            return found
        column = input_of(values)
        for row in range(count):
            if not value_at(&column, row, &value):
                raise ValueError("a column of values is damaged")
            out[row] = fault_of(value)
        return found

    def scan(self, values, sources, records_us, const int8_t[::1] given, custom):
        """The wanted columns, and `kind`, `fault`, `time` and `is_local` of each row.

        `given` is the kind that a rule gives, -1 where the line tells its own. Records' times
        are those of a clock in the zone of lines without one.
        """
        cdef Py_ssize_t count = len(values), row, place
        cdef Input lines, keys, names, items
        cdef const uint8_t* record_validity
        cdef const int64_t* records
        cdef Py_ssize_t record_offset = records_us.offset
        cdef const uint8_t* map_validity = NULL
        cdef const int32_t* map_ends = NULL
        cdef Py_ssize_t map_offset = 0, pairs_max = 0
        cdef int32_t start, behind
        cdef Span line, key
        cdef bint is_whole = True
        if not (len(sources) == len(records_us) == given.shape[0] == count):
            raise ValueError("columns are not of one length")
        self._begin()
        if count:
            lines = input_of(values)
            keys = input_of(sources)
            validity, data = records_us.buffers()
            record_validity = address_of(validity, (record_offset + count + 7) // 8)
            records = <const int64_t*> address_of(data, (record_offset + count) * 8)
            if records == NULL:
                raise ValueError("a column has no times")
            if custom is not None:
                map_offset = custom.offset
                all_buffers = custom.buffers()
                map_validity = address_of(all_buffers[0], (map_offset + count + 7) // 8)
                map_ends = <const int32_t*> address_of(all_buffers[1], (map_offset + count + 1) * 4)
                names = input_of(custom.keys)
                items = input_of(custom.items)
                pairs_max = min(len(custom.keys), len(custom.items))
            with nogil:
                for row in range(count):
                    start = behind = -1
                    if map_ends != NULL and is_set(map_validity, map_offset + row):
                        start = map_ends[map_offset + row]
                        behind = map_ends[map_offset + row + 1]
                        if start < 0 or behind < start or behind > pairs_max:
                            is_whole = False
                            break
                    place = record_offset + row
                    if not (value_at(&lines, row, &line) and value_at(&keys, row, &key)
                            and self._scan_row(
                                row, line, key, records[place], is_set(record_validity, place),
                                given[row], &names, &items, start, behind)):
                        is_whole = False
                        break
        if not is_whole:
            raise ValueError("lines do not fit into memory, or a column is damaged")
        return self._take(count)

    cdef int _begin(self) except -1:
        """Nothing is kept of a batch that failed."""
        cdef int i
        for i in range(TEXTS):
            self._texts[i].data.size = self._texts[i].ends.size = 0
            append_int32(&self._texts[i].ends, 0)
        self._field_names.data.size = self._field_names.ends.size = 0
        self._field_values.data.size = self._field_values.ends.size = 0
        self._field_ends.size = 0
        self._field_count = 0
        append_int32(&self._field_names.ends, 0)
        append_int32(&self._field_values.ends, 0)
        append_int32(&self._field_ends, 0)
        self._status.data.size = self._size.data.size = self._duration.data.size = 0
        self._gauges.data.size = self._time.data.size = 0
        self._kinds.size = self._faults.size = self._is_local.size = 0
        return 0

    cdef _take(self, Py_ssize_t count):
        found = {
            "kind": arrays.numbers("int8", count, None, taken(&self._kinds)),
            "fault": arrays.numbers("int8", count, None, taken(&self._faults)),
            "is_local": arrays.numbers("uint8", count, None, taken(&self._is_local)),
            "time": self._taken_numbers("int64", count, &self._time),
        }
        for place, name in enumerate(SCANNED[:TEXTS]):
            if self._is_wanted[place]:
                found[name] = self._taken_texts(count, &self._texts[place])
        if self._is_wanted[C_STATUS]:
            found["status"] = self._taken_numbers("int32", count, &self._status)
        if self._is_wanted[C_SIZE]:
            found["size_bytes"] = self._taken_numbers("int64", count, &self._size)
        if self._is_wanted[C_DURATION]:
            found["duration_ms"] = self._taken_numbers("float64", count, &self._duration)
        if self._is_wanted[C_GAUGES]:
            flat = self._taken_numbers("float64", count * self._gauge_count, &self._gauges)
            found["gauges"] = arrays.lists(count, self._gauge_count, flat)
        if self._is_wanted[C_FIELDS]:
            fields = self._field_count
            found["fields"] = arrays.maps(
                count, taken(&self._field_validity), taken(&self._field_ends),
                self._taken_texts(fields, &self._field_names),
                self._taken_texts(fields, &self._field_values))
        return found

    cdef _taken_texts(self, Py_ssize_t count, Texts* column):
        return arrays.texts(
            count, taken(&column.validity), taken(&column.ends), taken(&column.data))

    cdef _taken_numbers(self, str kind, Py_ssize_t count, Numbers* column):
        return arrays.numbers(kind, count, taken(&column.validity), taken(&column.data))
