# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Lines by patterns; `line_patterns` says what steps mean, `_patterns_pure` is the same in Python.

Steps are taken from left to right, and no field is extended again once it has ended, so the
time that a line takes grows with its length only.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcmp

from millstream.lines._dated cimport skip_iso
from millstream.lines._fields cimport Fields, add_pair
from millstream.lines._text cimport DIGIT, LOWER, SPACE, Span, UPPER, are_in, is_at, is_in, put, skip
from millstream.lines._times cimport (
    SECOND_US, Time, floor_div, month_number, numeric_or_iso_time, time_at, two_digits, year_near,
)

# Numbers of `line_patterns.StepKind`.
cdef enum:
    LITERAL_STEP, WORD_STEP, WIDE_STEP, TIME_STEP

cdef enum:
    # Far from any time, so that a day more stays within 64 bits.
    FAR_BITS = 60


cdef struct Step:
    int kind
    # Of a field; of size 0 if it is dropped.
    Span name
    # The literal with single blanks, or the format of a time.
    Span text


# The steps of one pattern, and to which rule it belongs: those of a rule follow each other.
cdef struct Pattern:
    Step* steps
    int count
    int rule


# What a time's format has read so far; -1 says that it is not there.
cdef struct Clock:
    int year
    int month
    int day
    int hour
    int minute
    int second
    int64_t micros
    bint is_pm
    bint is_half_day
    bint is_utc
    int64_t zone_us
    Time since_1970


cdef inline bint is_blank(uint8_t letter) noexcept nogil:
    return letter == b' ' or letter == b'\t'


cdef inline const uint8_t* skip_tabs(const uint8_t* p, const uint8_t* end) noexcept nogil:
    """Behind blanks and tabs."""
    while p < end and is_blank(p[0]):
        p += 1
    return p


cdef inline const uint8_t* literal_end(
    Span literal, const uint8_t* p, const uint8_t* end
) noexcept nogil:
    """Behind the literal here; a blank of it is one blank or more."""
    cdef Py_ssize_t i
    for i in range(literal.size):
        if p >= end:
            return NULL
        if is_blank(literal.at[i]):
            if not is_blank(p[0]):
                return NULL
            p = skip_tabs(p, end)
        elif p[0] != literal.at[i]:
            return NULL
        else:
            p += 1
    return p


cdef inline const uint8_t* field_end(
    Pattern* pattern, int number, const uint8_t* p, const uint8_t* end, const uint8_t** behind
) noexcept nogil:
    """Where a field ends, and where the literal behind it does; NULL if there is none."""
    cdef Span literal
    cdef bint is_last = number + 2 == pattern.count
    cdef bint is_wide = pattern.steps[number].kind == WIDE_STEP
    cdef uint8_t first
    if number + 1 == pattern.count:
        behind[0] = end
        return end
    literal = pattern.steps[number + 1].text
    first = literal.at[0]
    while True:
        # Most letters are neither the literal's first nor a space.
        if p < end and (p[0] == first or is_blank(p[0])):
            behind[0] = literal_end(literal, p, end)
            if behind[0] != NULL and (not is_last or behind[0] == end):
                return p
        if p == end:
            return NULL
        if not is_wide and is_in(p[0], SPACE):
            behind[0] = literal_end(literal, skip_tabs(p, end), end)
            return p if behind[0] != NULL and (not is_last or behind[0] == end) else NULL
        # A literal that begins with a blank is nowhere in blanks where it is not at their start.
        if is_blank(first) and is_blank(p[0]):
            p = skip_tabs(p, end)
        else:
            p += 1


# -- times -----------------------------------------------------------------------------------


cdef inline const uint8_t* read_number(
    uint8_t letter, Clock* clock, const uint8_t* p, const uint8_t* end
) noexcept nogil:
    cdef const uint8_t* start = p
    cdef int digits_max = 4 if letter == b'Y' else 9 if letter == b'f' else 2
    cdef int number = 0
    cdef int64_t unit = SECOND_US, micros = 0
    while p < end and p - start < digits_max and is_in(p[0], DIGIT):
        number = number * 10 + (p[0] - 48)
        unit //= 10
        micros += unit * (p[0] - 48)
        p += 1
    if p == start or (letter == b'Y' and p - start < 4):
        return NULL
    if letter == b'Y':
        clock.year = number
    elif letter == b'y':
        clock.year = 2000 + number
    elif letter == b'm':
        clock.month = number
    elif letter == b'd' or letter == b'e':
        clock.day = number
    elif letter == b'H' or letter == b'I':
        clock.hour = number
        clock.is_half_day = letter == b'I'
    elif letter == b'M':
        clock.minute = number
    elif letter == b'S':
        clock.second = number
    else:
        clock.micros = micros
    return p


cdef inline const uint8_t* read_time_name(
    uint8_t letter, Clock* clock, const uint8_t* p, const uint8_t* end
) noexcept nogil:
    if letter == b'%':
        return p + 1 if is_at(p, end, b'%') else NULL
    if letter == b'p':
        if end - p < 2 or (p[1] | 0x20) != b'm' or not is_in(p[1], UPPER | LOWER):
            return NULL
        if (p[0] | 0x20) != b'a' and (p[0] | 0x20) != b'p':
            return NULL
        clock.is_pm = (p[0] | 0x20) == b'p'
        return p + 2
    if end - p < 3 or not (is_in(p[0], UPPER) and is_in(p[1], LOWER) and is_in(p[2], LOWER)):
        return NULL
    if letter == b'b':
        clock.month = month_number(p)
        if clock.month == 0:
            return NULL
    return p + 3


cdef inline const uint8_t* read_since_1970(
    Clock* clock, const uint8_t* p, const uint8_t* end
) noexcept nogil:
    cdef Span text
    cdef const uint8_t* fraction
    put(&text, p, skip(p, p + 19 if end - p > 19 else end, DIGIT))
    if text.size == 0:
        return NULL
    p += text.size
    if is_at(p, end, b'.') and are_in(p + 1, end, 1, DIGIT):
        fraction = p + 1
        p = skip(fraction, fraction + 9 if end - fraction > 9 else end, DIGIT)
        text.size = p - text.at
    clock.since_1970 = numeric_or_iso_time(text)
    return p if clock.since_1970.is_there else NULL


cdef inline const uint8_t* read_zone(
    uint8_t letter, Clock* clock, const uint8_t* p, const uint8_t* end
) noexcept nogil:
    cdef const uint8_t* start = p
    cdef int hours, minutes = 0
    if letter == b'Z':
        p = skip(p, p + 5 if end - p > 5 else end, UPPER)
        if p == start:
            return NULL
        clock.is_utc = (
            (p - start == 1 and start[0] == b'Z')
            or (p - start == 3
                and (memcmp(start, b"UTC", 3) == 0 or memcmp(start, b"GMT", 3) == 0))
        )
        return p
    if is_at(p, end, b'Z'):
        clock.is_utc = True
        return p + 1
    if not (is_at(p, end, b'+') or is_at(p, end, b'-')) or not are_in(p + 1, end, 2, DIGIT):
        return NULL
    hours = two_digits(p + 1)
    p += 3
    if are_in(p, end, 2, DIGIT):
        minutes = two_digits(p)
        p += 2
    elif is_at(p, end, b':') and are_in(p + 1, end, 2, DIGIT):
        minutes = two_digits(p + 1)
        p += 3
    if minutes > 59 or hours * 60 + minutes > 18 * 60:
        return NULL
    clock.is_utc = True
    clock.zone_us = <int64_t> (hours * 60 + minutes) * 60 * SECOND_US
    if start[0] == b'-':
        clock.zone_us = -clock.zone_us
    return p


cdef inline const uint8_t* read_directive(
    uint8_t letter, Clock* clock, const uint8_t* p, const uint8_t* end
) noexcept nogil:
    if letter == b's':
        return read_since_1970(clock, p, end)
    if letter == b'b' or letter == b'a' or letter == b'p' or letter == b'%':
        return read_time_name(letter, clock, p, end)
    if letter == b'z' or letter == b'Z':
        return read_zone(letter, clock, p, end)
    return read_number(letter, clock, p, end)


cdef inline Time nearest_day(Clock* clock, int64_t record_us) noexcept nogil:
    """A clock without a day is of the day that brings it closest to the record."""
    cdef int64_t day_us = <int64_t> 86400 * SECOND_US
    cdef Time time
    time.is_local = not clock.is_utc
    time.is_there = clock.hour <= 23 and clock.minute <= 59 and clock.second <= 59
    time.micros = (
        floor_div(record_us, day_us) * day_us + clock.micros - clock.zone_us
        + <int64_t> ((clock.hour * 60 + clock.minute) * 60 + clock.second) * SECOND_US
    )
    if time.micros - record_us > day_us // 2:
        time.micros -= day_us
    elif record_us - time.micros > day_us // 2:
        time.micros += day_us
    return time


cdef inline Time time_of_clock(Clock* clock, int64_t record_us, bint is_recorded) noexcept nogil:
    cdef int64_t year = clock.year
    cdef int64_t far_us = <int64_t> 1 << FAR_BITS
    cdef Time time
    time.micros = 0
    time.is_there = time.is_local = False
    if clock.since_1970.is_there:
        return clock.since_1970
    if clock.is_half_day:
        if not 1 <= clock.hour <= 12:
            return time
        clock.hour = clock.hour % 12 + (12 if clock.is_pm else 0)
    if year < 0 and (not is_recorded or record_us > far_us or record_us < -far_us):
        return time
    if clock.month < 0:
        return nearest_day(clock, record_us)
    if year < 0:
        year = year_near(clock.month, record_us)
    if not 1 <= year <= 9999:
        return time
    time = time_at(<int> year, clock.month, clock.day, clock.hour, clock.minute, clock.second,
                   not clock.is_utc)
    time.micros += clock.micros - clock.zone_us
    return time


cdef inline const uint8_t* read_formatted_time(
    Span text, const uint8_t* p, const uint8_t* end, int64_t record_us, bint is_recorded,
    Time* time
) noexcept nogil:
    cdef Clock clock
    cdef Span letter
    cdef Py_ssize_t i = 0
    clock.year = clock.month = clock.day = -1
    clock.hour = clock.minute = clock.second = 0
    clock.micros = clock.zone_us = 0
    clock.is_pm = clock.is_half_day = clock.is_utc = False
    clock.since_1970.is_there = False
    while i < text.size and p != NULL:
        if text.at[i] == b'%':
            p = read_directive(text.at[i + 1], &clock, p, end)
            i += 2
        else:
            put(&letter, text.at + i, text.at + i + 1)
            p = literal_end(letter, p, end)
            i += 1
    if p == NULL:
        return NULL
    time[0] = time_of_clock(&clock, record_us, is_recorded)
    return p if time.is_there else NULL


# -- lines -----------------------------------------------------------------------------------


cdef inline int read_by_pattern(
    Pattern* pattern, Fields* fields, const uint8_t* p, const uint8_t* end, int64_t record_us,
    bint is_recorded, Time* time
) noexcept nogil:
    """1 if the whole line fits, 0 if not, -1 when there is no memory."""
    cdef Step* step
    cdef Span value
    cdef const uint8_t* start
    cdef const uint8_t* behind
    cdef int number = 0
    while number < pattern.count:
        step = &pattern.steps[number]
        start = p
        number += 1
        if step.kind == LITERAL_STEP:
            p = literal_end(step.text, p, end)
            if p == NULL:
                return 0
            continue
        behind = NULL
        if step.kind == TIME_STEP:
            behind = (
                read_formatted_time(step.text, p, end, record_us, is_recorded, time)
                if step.text.size else skip_iso(p, end)
            )
            if step.text.size and behind == NULL:
                return 0
        if behind != NULL:
            p = behind
        else:
            behind = field_end(pattern, number - 1, start, end, &p)
            if behind == NULL:
                return 0
            # The literal behind the field is read with it.
            number += 1
        put(&value, start, behind)
        if step.kind == TIME_STEP and step.text.size == 0:
            time[0] = numeric_or_iso_time(value)
            if not time.is_there:
                return 0
        if step.name.size and not add_pair(fields, step.name, value):
            return -1
    return p == end
