# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Lines into columns, compiled. `_scan_pure` is the same in Python.

A line is read in place: its layout's scanner notes where the parts are, and only the parts
that make a column that is wanted are copied, into buffers laid out as Arrow has them.

Bytes come from strangers: nothing is read before it is known to be there. The steps are in
the `.pxd` files beside this one, from `_text` up; they are all inlined here.
"""

import numpy as np

from millstream.lines import arrays, layouts
from millstream.lines.schema import SCANNED

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uintptr_t
from libc.stdlib cimport calloc, free
from libc.string cimport memchr, strlen

from millstream.lines._fields cimport (
    Fields, Known, Pair, drop_repeated, forget, learn, read_custom, read_json, read_logfmt,
)
from millstream.lines._layouts cimport (
    ACCESS, COMBINED, COMMON, CUSTOM, ERRORLOG, JSON, LABELLED, LOGFMT, PATTERN, SHORTDATE, TEXT,
    UNKNOWN, detect, scan_layout, time_of,
)
from millstream.lines._memory cimport (
    ARROW_BYTES_MAX, Buffer, Input, Numbers, Texts, add_number, add_text, append, append_int32,
    is_set, set_bit, value_at,
)
from millstream.lines._numbers cimport read_double, read_integer, read_request_ms
from millstream.lines._patterns cimport Pattern, Step, read_by_pattern
from millstream.lines._slots cimport (
    ADDRESS, AGENT, DURATION, HOST, LEVEL, MESSAGE, METHOD, PATH, PRIORITY, PROGRAM_NAME, QUERY,
    REFERRER, REST, SERVICE, SIZE, SLOTS, STATUS, USER,
)
from millstream.lines._text cimport (
    LETTER, UPPER, Span, is_in, is_text_at, ms_classes_begin, ms_is_utf8, put,
)
from millstream.lines._times cimport Time

cdef extern from *:
    """
    static const char *ms_severities[] = {"emergency", "alert", "critical", "error", "warning",
                                          "notice", "info", "debug"};

    static const char *ms_level_of_letter(char letter) {
        switch (letter | 0x20) {
            case 'v': case 't': return "trace";
            case 'd': return "debug";
            case 'i': return "info";
            case 'n': return "notice";
            case 'w': return "warning";
            case 'e': return "error";
            case 'c': return "critical";
            case 'f': return "fatal";
            default: return 0;
        }
    }
    """
    const char** ms_severities
    # `layouts.LEVEL_LETTERS`.
    const char* ms_level_of_letter(char letter) noexcept nogil

cdef const char* BYTE_ORDER_MARK = b"\xef\xbb\xbf"

ms_classes_begin()

NAME = "compiled"

# Places in `layouts.FAULTS`.
cdef enum:
    NO_FAULT, EMPTY, TOO_LONG, NOT_UTF8, CONTROL

cdef enum:
    LINE_BYTES_MAX = 65536

# Places in `schema.SCANNED`, and the time.
cdef enum:
    C_HOST, C_SERVICE, C_PROGRAM, C_ADDRESS, C_USER, C_VISITOR, C_METHOD, C_PATH, C_QUERY
    C_LEVEL, C_REFERRER, C_AGENT, C_MESSAGE
    C_STATUS, C_SIZE, C_DURATION, C_FIELDS, C_GAUGES
    C_TIME
    COLUMNS
    # Those before are of text.
    TEXTS = C_STATUS

# The slot that a column of text is a copy of.
cdef int[TEXTS] SLOT_OF
SLOT_OF[:] = [HOST, SERVICE, PROGRAM_NAME, ADDRESS, USER, USER, METHOD, PATH, QUERY, LEVEL,
              REFERRER, AGENT, MESSAGE]

# The fields that a column is made from, where it is not that of its name.
NEEDS = {
    "visitor": ("user", "address", "agent"),
    "size_bytes": ("size",),
    "duration_ms": ("duration",),
}

assert SCANNED == (
    "host", "service", "program", "address", "user", "visitor", "method", "path", "query", "level",
    "referrer", "agent", "message", "status", "size_bytes", "duration_ms", "fields", "gauges",
)
assert layouts.KINDS.index("combined") == COMBINED
assert layouts.KINDS.index("pattern") == PATTERN == len(layouts.KINDS) - 1
assert layouts.FAULTS.index("control characters") == CONTROL
assert layouts.LINE_BYTES_MAX == LINE_BYTES_MAX


cdef bytes taken(Buffer* buffer):
    """What a buffer holds; then it is empty, and keeps its memory."""
    data = PyBytes_FromStringAndSize(<char*> buffer.data, buffer.size)
    buffer.size = 0
    return data


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


cdef int fault_of(Span value) noexcept nogil:
    if value.size <= 0:
        return EMPTY
    if value.size > LINE_BYTES_MAX:
        return TOO_LONG
    if not ms_is_utf8(value.at, value.at + value.size):
        return NOT_UTF8
    return CONTROL if memchr(value.at, 1, value.size) != NULL else NO_FAULT


cdef bint is_line_end(uint8_t letter) noexcept nogil:
    return letter == b' ' or letter == b'\r' or letter == b'\n'


cdef void drop_nothings(Span* slots) noexcept nogil:
    """Empty texts and `-` say nothing."""
    cdef int i
    for i in range(SLOTS):
        if slots[i].size == 0 or (slots[i].size == 1 and slots[i].at[0] == b'-'):
            slots[i].size = -1


# Of a batch: what its rows are read from.
cdef struct Batch:
    Input values
    Input sources
    const uint8_t* record_validity
    const int64_t* records
    Py_ssize_t record_offset
    # The fields that functions of users found, or NULL.
    const uint8_t* map_validity
    const int32_t* map_ends
    Py_ssize_t map_offset
    Input map_names
    Input map_values
    Py_ssize_t pairs_max


cdef Batch batch_of(values, sources, records_us, custom) except *:
    cdef Batch batch
    cdef Py_ssize_t count = len(values)
    batch.values = input_of(values)
    batch.sources = input_of(sources)
    batch.record_offset = records_us.offset
    validity, data = records_us.buffers()
    batch.record_validity = address_of(validity, (batch.record_offset + count + 7) // 8)
    batch.records = <const int64_t*> address_of(data, (batch.record_offset + count) * 8)
    if batch.records == NULL:
        raise ValueError("a column has no times")
    batch.map_ends = NULL
    if custom is not None:
        batch.map_offset = custom.offset
        validity, ends = custom.buffers()[:2]
        batch.map_validity = address_of(validity, (batch.map_offset + count + 7) // 8)
        batch.map_ends = <const int32_t*> address_of(ends, (batch.map_offset + count + 1) * 4)
        batch.map_names = input_of(custom.keys)
        batch.map_values = input_of(custom.items)
        batch.pairs_max = min(len(custom.keys), len(custom.items))
    return batch


cdef class Scanner:
    """Makes the wanted columns of one batch after another."""

    cdef bint[COLUMNS] _is_wanted
    # Of each column only what its kind needs is used.
    cdef Texts[TEXTS] _texts
    cdef Numbers[COLUMNS] _numbers
    cdef Buffer _kinds
    cdef Buffer _faults
    cdef Buffer _is_local
    # The map of all fields.
    cdef Buffer _map_validity
    cdef Buffer _map_ends
    cdef Texts _map_names
    cdef Texts _map_values
    cdef size_t _map_count
    cdef Fields _fields
    # Of all rules, in their order.
    cdef Pattern* _patterns
    cdef int _pattern_count
    # Their bytes are pointed to.
    cdef list _names
    cdef bint _is_busy

    def __cinit__(self, wanted, gauges, patterns=()):
        cdef size_t room = 64
        for place, name in enumerate(SCANNED):
            self._is_wanted[place] = name in wanted
        names = self._meanings(wanted, gauges)
        while room < 4 * <size_t> len(names):
            room *= 2
        self._fields.gauge_count = len(gauges)
        self._fields.gauges = <double*> calloc(len(gauges) + 1, sizeof(double))
        self._fields.is_gauge_there = <bint*> calloc(len(gauges) + 1, sizeof(bint))
        self._fields.known = <Known*> calloc(room, sizeof(Known))
        self._fields.known_mask = room - 1
        self._fields.are_pairs_wanted = self._is_wanted[C_FIELDS]
        if (self._fields.gauges == NULL or self._fields.is_gauge_there == NULL
                or self._fields.known == NULL):
            raise MemoryError("no memory for a scanner")
        self._names = list(names)
        for name, (slot, priority, gauge) in names.items():
            learn(&self._fields, Known(
                <const uint8_t*> PyBytes_AS_STRING(name), len(name), slot, priority, gauge))
        self._learn_patterns(patterns)

    cdef _learn_patterns(self, patterns):
        cdef int at = 0
        self._patterns = <Pattern*> calloc(sum(map(len, patterns)) + 1, sizeof(Pattern))
        if self._patterns == NULL:
            raise MemoryError("no memory for a scanner")
        for rule, of_rule in enumerate(patterns):
            for steps in of_rule:
                self._patterns[at].rule = rule
                self._patterns[at].steps = <Step*> calloc(len(steps), sizeof(Step))
                # Counted first, so that it is freed.
                self._pattern_count = at + 1
                if self._patterns[at].steps == NULL:
                    raise MemoryError("no memory for a scanner")
                self._patterns[at].count = len(steps)
                for number, step in enumerate(steps):
                    self._patterns[at].steps[number] = Step(
                        step.kind, self._kept(step.name.encode()), self._kept(step.text))
                at += 1

    cdef Span _kept(self, bytes text) except *:
        cdef Span span
        self._names.append(text)
        span.at = <const uint8_t*> PyBytes_AS_STRING(text)
        span.size = len(text)
        return span

    @staticmethod
    def _meanings(wanted, gauges):
        """For each name of a field its slot, how good it is for that, and its gauge."""
        needed = {"time"}.union(*(NEEDS.get(name, (name,)) for name in wanted))
        names = {}
        for slot, (column, aliases) in enumerate(layouts.ALIASES.items()):
            for priority, alias in enumerate(aliases):
                if column in needed:
                    names[alias.encode()] = [slot, priority, -1]
        for place, gauge in enumerate(gauges if "gauges" in wanted else ()):
            if gauge:
                names.setdefault(gauge.encode(), [-1, 0, -1])[2] = place
        return names

    def __dealloc__(self):
        cdef int i
        for i in range(TEXTS):
            self._free_texts(&self._texts[i])
        self._free_texts(&self._map_names)
        self._free_texts(&self._map_values)
        for i in range(COLUMNS):
            free(self._numbers[i].validity.data)
            free(self._numbers[i].data.data)
        free(self._kinds.data)
        free(self._faults.data)
        free(self._is_local.data)
        free(self._map_validity.data)
        free(self._map_ends.data)
        free(self._fields.pairs.data)
        free(self._fields.order.data)
        free(self._fields.unescaped.data)
        for i in range(self._pattern_count):
            free(self._patterns[i].steps)
        free(self._patterns)
        free(self._fields.known)
        free(self._fields.gauges)
        free(self._fields.is_gauge_there)

    cdef void _free_texts(self, Texts* column) noexcept:
        free(column.validity.data)
        free(column.ends.data)
        free(column.data.data)

    # -- columns -------------------------------------------------------------------------------

    cdef bint _add_numbers(self, size_t row) noexcept nogil:
        cdef Span* slots = self._fields.slots
        cdef int64_t whole = 0
        cdef int32_t status
        cdef double number = 0
        cdef bint is_there
        cdef int i
        if self._is_wanted[C_STATUS]:
            is_there = read_integer(slots[STATUS], 32, &whole)
            status = <int32_t> whole
            if not add_number(&self._numbers[C_STATUS], row, is_there, &status, 4):
                return False
        if self._is_wanted[C_SIZE]:
            is_there = read_integer(slots[SIZE], 64, &whole)
            if not add_number(&self._numbers[C_SIZE], row, is_there, &whole, 8):
                return False
        if self._is_wanted[C_DURATION]:
            is_there = (read_double(slots[DURATION], &number)
                        or read_request_ms(slots[REST], &number))
            if not add_number(&self._numbers[C_DURATION], row, is_there, &number, 8):
                return False
        if self._is_wanted[C_GAUGES]:
            for i in range(self._fields.gauge_count):
                if not add_number(&self._numbers[C_GAUGES], row * self._fields.gauge_count + i,
                                  self._fields.is_gauge_there[i], &self._fields.gauges[i], 8):
                    return False
        return True

    cdef bint _add_level(self, size_t row) noexcept nogil:
        """In small letters and spelled out; where syslog has none, from the priority."""
        cdef Texts* column = &self._texts[C_LEVEL]
        cdef Span level = self._fields.slots[LEVEL]
        cdef size_t i = column.data.size
        cdef int64_t priority
        cdef const char* name = NULL
        if level.size == 1 and is_in(level.at[0], LETTER):
            name = ms_level_of_letter(level.at[0])
        elif level.size < 0 and read_integer(self._fields.slots[PRIORITY], 32, &priority):
            name = ms_severities[priority % 8]
        if name != NULL:
            level.at = <const uint8_t*> name
            level.size = strlen(name)
        if not add_text(column, row, level):
            return False
        while i < column.data.size:
            if is_in(column.data.data[i], UPPER):
                column.data.data[i] |= 0x20
            i += 1
        return True

    cdef bint _add_visitor(self, size_t row) noexcept nogil:
        """What a visitor is told by: the user, else the address with the agent."""
        cdef Texts* column = &self._texts[C_VISITOR]
        cdef Span user = self._fields.slots[USER]
        cdef Span address = self._fields.slots[ADDRESS]
        cdef Span agent = self._fields.slots[AGENT]
        if user.size >= 0:
            return add_text(column, row, user)
        if address.size < 0 or agent.size < 0:
            return add_text(column, row, address)
        return (
            append(&column.data, address.at, address.size) and append(&column.data, b"|", 1)
            and add_text(column, row, agent)
        )

    cdef bint _add_texts(self, size_t row, Span source) noexcept nogil:
        cdef Span* slots = self._fields.slots
        cdef const uint8_t* slash = NULL
        cdef bint is_added
        cdef int i
        if slots[HOST].size < 0 and source.size >= 0:
            if source.size:
                slash = <const uint8_t*> memchr(source.at, b'/', source.size)
            put(&slots[HOST], source.at, slash if slash != NULL else source.at + source.size)
        for i in range(TEXTS):
            if not self._is_wanted[i]:
                continue
            if i == C_LEVEL:
                is_added = self._add_level(row)
            elif i == C_VISITOR:
                is_added = self._add_visitor(row)
            else:
                is_added = add_text(&self._texts[i], row, slots[SLOT_OF[i]])
            if not is_added:
                return False
        return True

    cdef bint _add_map(self, size_t row, bint is_there) noexcept nogil:
        cdef Pair* pairs = <Pair*> self._fields.pairs.data
        cdef size_t i
        if is_there:
            if not drop_repeated(&self._fields):
                return False
            for i in range(self._fields.pairs.size // sizeof(Pair)):
                if pairs[i].is_dropped:
                    continue
                if not (add_text(&self._map_names, self._map_count, pairs[i].name)
                        and add_text(&self._map_values, self._map_count, pairs[i].value)):
                    return False
                self._map_count += 1
        return (
            set_bit(&self._map_validity, row, is_there)
            and self._map_count <= ARROW_BYTES_MAX
            and append_int32(&self._map_ends, <int32_t> self._map_count)
        )

    cdef bint _add_row(
        self, size_t row, int8_t kind, int8_t fault, Span source, Time time, bint has_fields
    ) noexcept nogil:
        cdef uint8_t is_local = time.is_there and time.is_local
        return (
            append(&self._kinds, &kind, 1)
            and append(&self._faults, &fault, 1)
            and append(&self._is_local, &is_local, 1)
            and add_number(&self._numbers[C_TIME], row, time.is_there, &time.micros, 8)
            and self._add_texts(row, source)
            and self._add_numbers(row)
            and (not self._is_wanted[C_FIELDS] or self._add_map(row, has_fields))
        )

    # -- rows ----------------------------------------------------------------------------------

    cdef int _read(
        self, int kind, const uint8_t* p, const uint8_t* end, Batch* batch, Py_ssize_t row
    ) noexcept nogil:
        """Fill the slots: 1 if the line is of its kind, 0 if not, -1 when there is no memory."""
        cdef Py_ssize_t place = batch.map_offset + row
        cdef int32_t start = -1, behind = -1
        if kind == JSON:
            return read_json(&self._fields, p, end)
        if kind == LOGFMT:
            return read_logfmt(&self._fields, p, end)
        if kind != CUSTOM:
            return scan_layout(kind, p, end, self._fields.slots)
        if batch.map_ends != NULL and is_set(batch.map_validity, place):
            start = batch.map_ends[place]
            behind = batch.map_ends[place + 1]
            if start < 0 or behind > batch.pairs_max:
                return -1
        return read_custom(&self._fields, &batch.map_names, &batch.map_values, start, behind)

    cdef int _read_by_patterns(
        self, int rule, const uint8_t* p, const uint8_t* end, Batch* batch, Py_ssize_t place,
        Time* time
    ) noexcept nogil:
        """The same, by the first pattern of a rule that the line fits."""
        cdef int i, found
        for i in range(self._pattern_count):
            if self._patterns[i].rule != rule:
                continue
            found = read_by_pattern(
                &self._patterns[i], &self._fields, p, end, batch.records[place],
                is_set(batch.record_validity, place), time)
            if found:
                return found
            forget(&self._fields)
        return 0

    cdef bint _scan_line(
        self, Py_ssize_t row, Span line, Span source, int given, Batch* batch
    ) noexcept nogil:
        cdef const uint8_t* end = line.at + line.size
        cdef Py_ssize_t place = batch.record_offset + row
        cdef int kind = given, found = 0
        cdef bint has_fields
        cdef Time time
        while end > line.at and is_line_end((end - 1)[0]):
            end -= 1
        if is_text_at(line.at, end, BYTE_ORDER_MARK, 3):
            line.at += 3
        if given > PATTERN:
            kind = PATTERN
        if given < 0 or given == TEXT:
            kind = detect(line.at, end)
        # Variants of text are told from each line.
        if given == TEXT and kind != ERRORLOG and kind != SHORTDATE and kind != LABELLED:
            kind = TEXT
        time.micros = 0
        time.is_there = time.is_local = False
        if kind == PATTERN:
            found = self._read_by_patterns(
                given - PATTERN - 1, line.at, end, batch, place, &time)
        elif kind != UNKNOWN:
            found = self._read(kind, line.at, end, batch, row)
        if found < 0:
            return False
        if found == 0:
            forget(&self._fields)
            time.is_there = time.is_local = False
        has_fields = found and (kind == JSON or kind == LOGFMT or kind >= CUSTOM)
        given = kind
        if kind == ACCESS and found:
            given = COMBINED if self._fields.slots[AGENT].size >= 0 else COMMON
        drop_nothings(self._fields.slots)
        if kind != PATTERN:
            time = time_of(kind, self._fields.slots, batch.records[place],
                           is_set(batch.record_validity, place))
        return self._add_row(row, given, NO_FAULT, source, time, has_fields)

    cdef bint _scan_row(self, Py_ssize_t row, int given, Batch* batch) noexcept nogil:
        cdef Span value, source
        cdef Time time
        cdef int fault
        if not value_at(&batch.values, row, &value) or not value_at(&batch.sources, row, &source):
            return False
        forget(&self._fields)
        fault = fault_of(value)
        if fault == NO_FAULT:
            return self._scan_line(row, value, source, given, batch)
        time.micros = 0
        time.is_there = time.is_local = False
        if given > PATTERN:
            given = PATTERN
        return self._add_row(row, UNKNOWN if given < 0 else given, fault, source, time, False)

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

        `given` is the kind that a rule gives, -1 where the line tells its own; above the last kind
        it is the place of the patterns that do, counted from there. Records' times are those of
        a clock in the zone of lines without one.
        """
        cdef Py_ssize_t count = len(values), row = 0
        cdef Batch batch
        if not (len(sources) == len(records_us) == given.shape[0] == count):
            raise ValueError("columns are not of one length")
        if custom is not None and len(custom) != count:
            raise ValueError("columns are not of one length")
        if self._is_busy:
            raise RuntimeError("a scanner is for one thread")
        if not self._begin():
            raise MemoryError("no memory for lines")
        if count:
            batch = batch_of(values, sources, records_us, custom)
            self._is_busy = True
            with nogil:
                while row < count and self._scan_row(row, given[row], &batch):
                    row += 1
            self._is_busy = False
        if row < count:
            raise ValueError("lines do not fit into memory, or a column is damaged")
        return self._take(count)

    cdef bint _begin(self) noexcept:
        """Nothing is kept of a batch that failed."""
        cdef int i
        for i in range(COLUMNS):
            self._numbers[i].data.size = self._numbers[i].validity.size = 0
        for i in range(TEXTS):
            if not self._begin_texts(&self._texts[i]):
                return False
        self._kinds.size = self._faults.size = self._is_local.size = 0
        self._map_validity.size = self._map_ends.size = 0
        self._map_count = 0
        return (self._begin_texts(&self._map_names) and self._begin_texts(&self._map_values)
                and append_int32(&self._map_ends, 0))

    cdef bint _begin_texts(self, Texts* column) noexcept:
        column.validity.size = column.ends.size = column.data.size = 0
        return append_int32(&column.ends, 0)

    cdef _take(self, Py_ssize_t count):
        found = {
            "kind": arrays.numbers("int8", count, None, taken(&self._kinds)),
            "fault": arrays.numbers("int8", count, None, taken(&self._faults)),
            "is_local": arrays.numbers("uint8", count, None, taken(&self._is_local)),
            "time": self._taken_numbers("int64", count, C_TIME),
        }
        for place in range(TEXTS):
            if self._is_wanted[place]:
                found[SCANNED[place]] = self._taken_texts(count, &self._texts[place])
        if self._is_wanted[C_STATUS]:
            found["status"] = self._taken_numbers("int32", count, C_STATUS)
        if self._is_wanted[C_SIZE]:
            found["size_bytes"] = self._taken_numbers("int64", count, C_SIZE)
        if self._is_wanted[C_DURATION]:
            found["duration_ms"] = self._taken_numbers("float64", count, C_DURATION)
        if self._is_wanted[C_GAUGES]:
            width = self._fields.gauge_count
            flat = self._taken_numbers("float64", count * width, C_GAUGES)
            found["gauges"] = arrays.lists(count, width, flat)
        if self._is_wanted[C_FIELDS]:
            found["fields"] = arrays.maps(
                count, taken(&self._map_validity), taken(&self._map_ends),
                self._taken_texts(self._map_count, &self._map_names),
                self._taken_texts(self._map_count, &self._map_values))
        return found

    cdef _taken_texts(self, Py_ssize_t count, Texts* column):
        return arrays.texts(
            count, taken(&column.validity), taken(&column.ends), taken(&column.data))

    cdef _taken_numbers(self, str kind, Py_ssize_t count, int place):
        return arrays.numbers(
            kind, count, taken(&self._numbers[place].validity), taken(&self._numbers[place].data))
