# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Lines that name their fields: JSON, logfmt, and what functions of users return.

Fields that columns are made from go into slots, in place; where all fields are wanted they
are noted as pairs too. Readers say 1 if a line is of its kind, 0 if not, and -1 when there is
no memory.
"""

from libc.stdint cimport int32_t, uint8_t
from libc.stdlib cimport qsort
from libc.string cimport memchr, memcmp, memset

from millstream.lines._json cimport skip_nested, skip_scalar, skip_space, skip_string, unescape
from millstream.lines._memory cimport Buffer, Input, append, reserve, value_at
from millstream.lines._numbers cimport read_double
from millstream.lines._slots cimport SLOTS
from millstream.lines._text cimport NAME, SPACE, Span, find_quote, is_at, is_in, put, skip

cdef enum:
    # Up to here every name is compared with every other, above they are sorted.
    FEW_PAIRS = 32
    NO_PRIORITY = 127


# A name that a field may have, and what it means; -1 for no slot and no gauge.
cdef struct Known:
    const uint8_t* name
    Py_ssize_t size
    int slot
    int priority
    int gauge


cdef struct Pair:
    Span name
    # Of a size below 0: null.
    Span value
    bint is_dropped


# What is known of the line at hand.
cdef struct Fields:
    Span[SLOTS] slots
    # Which of its names a slot was filled by, the best is 0.
    int[SLOTS] priorities
    # Open addressing by length and two letters: the names are ours, and few.
    Known* known
    size_t known_mask
    int gauge_count
    double* gauges
    bint* is_gauge_there
    bint are_pairs_wanted
    Buffer pairs
    Buffer order
    Buffer unescaped


cdef inline void forget(Fields* fields) noexcept nogil:
    cdef int i
    for i in range(SLOTS):
        fields.slots[i].size = -1
        fields.priorities[i] = NO_PRIORITY
    memset(fields.is_gauge_there, 0, fields.gauge_count * sizeof(bint))
    fields.pairs.size = 0


# -- names -----------------------------------------------------------------------------------


cdef inline size_t place_of(Fields* fields, const uint8_t* name, Py_ssize_t size) noexcept nogil:
    return (<size_t> name[0] * 7 + <size_t> name[size - 1] * 31 + <size_t> size) & (
        fields.known_mask)


cdef inline void learn(Fields* fields, Known known) noexcept nogil:
    """There must be room, and the name must stay."""
    cdef size_t place = place_of(fields, known.name, known.size)
    while fields.known[place].name != NULL:
        place = (place + 1) & fields.known_mask
    fields.known[place] = known


cdef inline void note(Fields* fields, Span name, Span value) noexcept nogil:
    """A field that is not null: into its slot and its gauge."""
    cdef Known* known
    cdef size_t place
    if name.size == 0:
        return
    place = place_of(fields, name.at, name.size)
    while fields.known[place].name != NULL:
        known = &fields.known[place]
        if known.size == name.size and memcmp(known.name, name.at, name.size) == 0:
            if known.slot >= 0 and known.priority <= fields.priorities[known.slot]:
                fields.priorities[known.slot] = known.priority
                fields.slots[known.slot] = value
            if known.gauge >= 0:
                fields.is_gauge_there[known.gauge] = read_double(
                    value, &fields.gauges[known.gauge])
            return
        place = (place + 1) & fields.known_mask


cdef inline bint add_pair(Fields* fields, Span name, Span value) noexcept nogil:
    cdef Pair pair
    if value.size >= 0:
        note(fields, name, value)
    if not fields.are_pairs_wanted:
        return True
    pair.name = name
    pair.value = value
    pair.is_dropped = False
    return append(&fields.pairs, &pair, sizeof(Pair))


cdef inline bint is_same(Span one, Span other) noexcept nogil:
    return one.size == other.size and memcmp(one.at, other.at, one.size) == 0


cdef inline int by_name(const void* one, const void* other) noexcept nogil:
    """By name, and those of one name as they came."""
    cdef Pair* a = (<Pair**> one)[0]
    cdef Pair* b = (<Pair**> other)[0]
    cdef int order
    if a.name.size != b.name.size:
        return -1 if a.name.size < b.name.size else 1
    order = memcmp(a.name.at, b.name.at, a.name.size)
    if order:
        return order
    return -1 if a < b else 1


cdef inline bint drop_repeated(Fields* fields) noexcept nogil:
    """Names stay where they came first, with the value that came last."""
    cdef Pair* pairs = <Pair*> fields.pairs.data
    cdef Py_ssize_t count = fields.pairs.size // sizeof(Pair)
    cdef Py_ssize_t i, j
    cdef Pair** order
    if count <= FEW_PAIRS:
        for i in range(count):
            for j in range(i + 1, count):
                if is_same(pairs[i].name, pairs[j].name):
                    pairs[i].value = pairs[j].value
                    pairs[j].is_dropped = True
        return True
    fields.order.size = 0
    if not reserve(&fields.order, count * sizeof(Pair*)):
        return False
    order = <Pair**> fields.order.data
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


# -- JSON ------------------------------------------------------------------------------------


cdef inline const uint8_t* read_string(
    const uint8_t* p, const uint8_t* end, Span* text, uint8_t** free_at
) noexcept nogil:
    cdef bint is_escaped
    cdef const uint8_t* behind = skip_string(p, end, &is_escaped)
    if behind == NULL:
        return NULL
    if is_escaped:
        text[0] = unescape(p + 1, behind - 1, free_at[0])
        free_at[0] += text.size
    else:
        put(text, p + 1, behind - 1)
    return behind


cdef inline const uint8_t* read_value(
    const uint8_t* p, const uint8_t* end, Span* value, uint8_t** free_at
) noexcept nogil:
    """A string as its text, null as null, everything else as it is written."""
    cdef const uint8_t* behind
    if is_at(p, end, b'"'):
        return read_string(p, end, value, free_at)
    if is_at(p, end, b'{') or is_at(p, end, b'['):
        behind = skip_nested(p, end)
    else:
        behind = skip_scalar(p, end)
    if behind != NULL:
        put(value, p, behind)
        if p[0] == b'n':
            value.size = -1
    return behind


cdef inline int read_json(Fields* fields, const uint8_t* p, const uint8_t* end) noexcept nogil:
    cdef Span name, value
    cdef uint8_t* free_at
    # Texts get no longer when they are unescaped.
    fields.unescaped.size = 0
    if not reserve(&fields.unescaped, end - p):
        return -1
    free_at = fields.unescaped.data
    p = skip_space(p, end)
    if not is_at(p, end, b'{'):
        return 0
    p = skip_space(p + 1, end)
    if is_at(p, end, b'}'):
        return skip_space(p + 1, end) == end
    while True:
        p = read_string(p, end, &name, &free_at)
        if p == NULL:
            return 0
        p = skip_space(p, end)
        if not is_at(p, end, b':'):
            return 0
        p = read_value(skip_space(p + 1, end), end, &value, &free_at)
        if p == NULL:
            return 0
        if not add_pair(fields, name, value):
            return -1
        p = skip_space(p, end)
        if is_at(p, end, b'}'):
            return skip_space(p + 1, end) == end
        if not is_at(p, end, b','):
            return 0
        p = skip_space(p + 1, end)


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


cdef inline Span without_backslashes(Span text, uint8_t* out) noexcept nogil:
    cdef const uint8_t* p = text.at
    cdef const uint8_t* end = text.at + text.size
    cdef Span found
    found.at = out
    while p < end:
        if p[0] == b'\\' and end - p > 1:
            p += 1
        out[0] = p[0]
        out += 1
        p += 1
    found.size = out - found.at
    return found


cdef inline int read_logfmt(Fields* fields, const uint8_t* p, const uint8_t* end) noexcept nogil:
    cdef Span name, value
    cdef uint8_t* free_at
    cdef bint is_quoted = False
    fields.unescaped.size = 0
    if not reserve(&fields.unescaped, end - p):
        return -1
    free_at = fields.unescaped.data
    p = next_pair(p, end, &name, &value, &is_quoted)
    while p != NULL:
        if is_quoted and memchr(value.at, b'\\', value.size) != NULL:
            value = without_backslashes(value, free_at)
            free_at += value.size
        if not add_pair(fields, name, value):
            return -1
        p = next_pair(p, end, &name, &value, &is_quoted)
    return 1


# -- functions of users ----------------------------------------------------------------------


cdef inline int read_custom(
    Fields* fields, Input* names, Input* values, int32_t start, int32_t behind
) noexcept nogil:
    """The entries [start, behind) of a map; none if `start` is below 0."""
    cdef Span name, value
    cdef int32_t place
    if start < 0:
        return 0
    for place in range(start, behind):
        if not value_at(names, place, &name) or not value_at(values, place, &value):
            return -1
        if name.size >= 0 and not add_pair(fields, name, value):
            return -1
    return 1
