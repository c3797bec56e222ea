# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Times as lines write them; `_times_pure` is the same in Python."""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from millstream.lines._text cimport (
    DIGIT, Span, are_in, is_at, is_text_at, skip, stripped, two_digits,
)

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    static const char ms_months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    """
    const char* ms_months

cdef enum:
    SECOND_US = 1000000


cdef struct Time:
    int64_t micros
    bint is_there
    # Of a clock in a zone that is not known here.
    bint is_local


cdef inline int64_t floor_div(int64_t number, int64_t by) noexcept nogil:
    return number // by - (1 if number % by < 0 else 0)


cdef inline int month_number(const uint8_t* p) noexcept nogil:
    """1 to 12, or 0."""
    cdef int i
    for i in range(12):
        if (p[0] == <uint8_t> ms_months[3 * i] and p[1] == <uint8_t> ms_months[3 * i + 1]
                and p[2] == <uint8_t> ms_months[3 * i + 2]):
            return i + 1
    return 0


cdef inline int days_of(int year, int month) noexcept nogil:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month == 4 or month == 6 or month == 9 or month == 11 else 31


cdef inline Time time_at(
    int year, int month, int day, int hour, int minute, int second, bint is_local
) noexcept nogil:
    """There only if there is such a day and such an hour."""
    cdef Time time
    cdef int64_t era, of_era, of_year, days
    time.micros = 0
    time.is_local = is_local
    time.is_there = (
        1 <= year <= 9999 and 1 <= month <= 12 and 1 <= day <= days_of(year, month)
        and hour <= 23 and minute <= 59 and second <= 59
    )
    if not time.is_there:
        return time
    # Years from March on: the leap day is the last.
    if month <= 2:
        year -= 1
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    days = era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468
    time.micros = (((days * 24 + hour) * 60 + minute) * 60 + second) * SECOND_US
    return time


cdef inline void month_of(int64_t micros, int64_t* year, int* month) noexcept nogil:
    cdef int64_t days = floor_div(micros, <int64_t> 86400 * SECOND_US) + 719468
    cdef int64_t era = floor_div(days, 146097)
    cdef int64_t of_era = days - era * 146097
    cdef int64_t of_year
    year[0] = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    of_year = of_era - (365 * year[0] + year[0] // 4 - year[0] // 100)
    month[0] = <int> ((5 * of_year + 2) // 153)
    month[0] += 3 if month[0] < 10 else -9
    year[0] += era * 400 + (1 if month[0] <= 2 else 0)


cdef inline void shift_to_utc(
    Time* time, uint8_t sign, int hours, int minutes
) noexcept nogil:
    cdef int64_t shift = <int64_t> (hours * 60 + minutes) * 60 * SECOND_US
    if minutes > 59 or hours * 60 + minutes > 18 * 60:
        time.is_there = False
    time.micros += shift if sign == b'-' else -shift


cdef inline bint begins_iso(const uint8_t* p, const uint8_t* end) noexcept nogil:
    """`2026-09-21T13:59`, with slashes too, or a blank instead of the T."""
    return (
        end - p >= 16 and are_in(p, end, 4, DIGIT) and (p[4] == b'-' or p[4] == b'/')
        and are_in(p + 5, end, 2, DIGIT) and (p[7] == b'-' or p[7] == b'/')
        and are_in(p + 8, end, 2, DIGIT) and (p[10] == b'T' or p[10] == b' ')
        and are_in(p + 11, end, 2, DIGIT) and p[13] == b':' and are_in(p + 14, end, 2, DIGIT)
    )


cdef inline Time iso_time(const uint8_t* p, const uint8_t* end) noexcept nogil:
    """Of a text that begins as one; then seconds, a fraction and a zone may follow."""
    cdef const uint8_t* fraction
    cdef int64_t unit = SECOND_US, micros = 0
    cdef int second = 0
    cdef Time time
    cdef const uint8_t* zone = p + 16
    if is_at(zone, end, b':') and are_in(zone + 1, end, 2, DIGIT):
        second = two_digits(zone + 1)
        zone += 3
        if (is_at(zone, end, b'.') or is_at(zone, end, b',')) and are_in(zone + 1, end, 1, DIGIT):
            fraction = zone + 1
            zone = skip(fraction, end, DIGIT)
            while fraction < zone and unit > 1:
                unit //= 10
                micros += unit * (fraction[0] - 48)
                fraction += 1
    time = time_at(
        two_digits(p) * 100 + two_digits(p + 2), two_digits(p + 5), two_digits(p + 8),
        two_digits(p + 11), two_digits(p + 14), second, zone == end,
    )
    time.micros += micros
    if zone == end:
        return time
    return zone_of(time, zone + 1 if zone[0] == b' ' else zone, end)


cdef inline Time zone_of(Time time, const uint8_t* p, const uint8_t* end) noexcept nogil:
    """The time with what its zone says: `Z`, `UTC`, `GMT`, `+02`, `+0200` or `+02:00`."""
    cdef Py_ssize_t size = end - p
    if size == 1 and p[0] == b'Z':
        return time
    if size == 3 and (is_text_at(p, end, b"UTC", 3) or is_text_at(p, end, b"GMT", 3)):
        return time
    if size >= 3 and (p[0] == b'+' or p[0] == b'-') and are_in(p + 1, end, 2, DIGIT):
        if size == 3:
            shift_to_utc(&time, p[0], two_digits(p + 1), 0)
            return time
        if (size == 5 and are_in(p + 3, end, 2, DIGIT)) or (
                size == 6 and p[3] == b':' and are_in(p + 4, end, 2, DIGIT)):
            shift_to_utc(&time, p[0], two_digits(p + 1), two_digits(end - 2))
            return time
    time.is_there = False
    return time


cdef inline Time numeric_or_iso_time(Span text) noexcept nogil:
    cdef Time time
    time.micros = 0
    time.is_there = time.is_local = False
    if text.size <= 0:
        return time
    text = stripped(text)
    if begins_iso(text.at, text.at + text.size):
        return iso_time(text.at, text.at + text.size)
    return numeric_time(text.at, text.at + text.size)


cdef inline int digit_at(
    const uint8_t* whole, Py_ssize_t whole_size, const uint8_t* fraction,
    Py_ssize_t fraction_size, Py_ssize_t place
) noexcept nogil:
    if place < whole_size:
        return whole[place] - 48
    return fraction[place - whole_size] - 48 if place - whole_size < fraction_size else 0


cdef inline Time numeric_time(const uint8_t* p, const uint8_t* end) noexcept nogil:
    """How large a number of our days is tells its unit, from seconds to nanoseconds."""
    cdef const uint8_t* whole
    cdef const uint8_t* fraction = NULL
    cdef Py_ssize_t whole_size, fraction_size = 0, zeros = 0, point, i
    cdef Py_ssize_t exponent = 0
    cdef bint is_small
    cdef uint64_t number = 0, nanos = 0
    cdef Time time
    time.micros = 0
    time.is_there = time.is_local = False
    if is_at(p, end, b'+'):
        p += 1
    whole = p
    p = skip(p, end, DIGIT)
    whole_size = p - whole
    if is_at(p, end, b'.'):
        fraction = p + 1
        p = skip(fraction, end, DIGIT)
        fraction_size = p - fraction
    if p < end and (p[0] == b'e' or p[0] == b'E'):
        p += 1
        is_small = is_at(p, end, b'-')
        if is_small or is_at(p, end, b'+'):
            p += 1
        if not 1 <= end - p <= 6 or skip(p, end, DIGIT) != end:
            return time
        while p < end:
            exponent = exponent * 10 + (p[0] - 48)
            p += 1
        if is_small:
            exponent = -exponent
    if p != end:
        return time
    while (zeros < whole_size + fraction_size
           and digit_at(whole, whole_size, fraction, fraction_size, zeros) == 0):
        zeros += 1
    # How many of the digits are before the point.
    point = whole_size + exponent - zeros
    if zeros == whole_size + fraction_size or not 9 <= point <= 19:
        return time
    for i in range(point):
        number = number * 10 + digit_at(whole, whole_size, fraction, fraction_size, zeros + i)
    for i in range(point, point + 9):
        nanos = nanos * 10 + digit_at(whole, whole_size, fraction, fraction_size, zeros + i)
    time.is_there = True
    if point <= 11:
        time.micros = <int64_t> (number * 1000000 + nanos // 1000)
    elif point <= 14:
        time.micros = <int64_t> (number * 1000 + nanos // 1000000)
    elif point <= 17:
        time.micros = <int64_t> number
    else:
        time.is_there = number < <uint64_t> 9000000000000000000ULL
        time.micros = <int64_t> (number // 1000)
    return time


cdef inline Time access_time(Span text) noexcept nogil:
    """Of `21/Sep/2026:15:59:58 +0200`, or `21/Sep/2026 15:59:58` as Python's servers write it."""
    cdef const uint8_t* p = text.at
    cdef bint has_zone = text.size == 26
    cdef Time time
    time.micros = 0
    time.is_there = time.is_local = False
    if text.size != 26 and text.size != 20:
        return time
    if not (
        are_in(p, p + 2, 2, DIGIT) and p[2] == b'/' and p[6] == b'/'
        and are_in(p + 7, p + 11, 4, DIGIT) and is_clock(p + 12, p + 20)
        and ((has_zone and p[11] == b':') or (not has_zone and p[11] == b' '))
    ):
        return time
    if has_zone and not (
        p[20] == b' ' and (p[21] == b'+' or p[21] == b'-') and are_in(p + 22, p + 26, 4, DIGIT)
    ):
        return time
    time = time_at(
        two_digits(p + 7) * 100 + two_digits(p + 9), month_number(p + 3), two_digits(p),
        two_digits(p + 12), two_digits(p + 15), two_digits(p + 18), not has_zone,
    )
    if has_zone:
        shift_to_utc(&time, p[21], two_digits(p + 22), two_digits(p + 24))
    return time


cdef inline bint is_clock(const uint8_t* p, const uint8_t* end) noexcept nogil:
    """`13:59:58`."""
    return (
        end - p >= 8 and are_in(p, end, 2, DIGIT) and p[2] == b':'
        and are_in(p + 3, end, 2, DIGIT) and p[5] == b':' and are_in(p + 6, end, 2, DIGIT)
    )


cdef inline int64_t year_near(int month, int64_t record_us) noexcept nogil:
    """The year that brings a month closest to the record."""
    cdef int64_t year = 0
    cdef int recorded_month = 0, far
    month_of(record_us, &year, &recorded_month)
    # Half a year off the record is the other side of a New Year.
    far = recorded_month - month
    return year + (1 if far > 6 else -1 if far < -6 else 0)


cdef inline Time words_time(
    Span year, Span month, Span day, Span clock, int64_t record_us, bint is_recorded
) noexcept nogil:
    """Month, day and clock; without a year, of the one that brings it closest to the record."""
    cdef int64_t of_year = 0
    cdef int number, of_day
    cdef Time time
    time.micros = 0
    time.is_there = time.is_local = False
    if month.size != 3 or clock.size != 8:
        return time
    number = month_number(month.at)
    if number == 0 or (year.size < 0 and not is_recorded):
        return time
    if year.size == 4:
        of_year = two_digits(year.at) * 100 + two_digits(year.at + 2)
    else:
        of_year = year_near(number, record_us)
    if not 1 <= of_year <= 9999:
        return time
    of_day = two_digits(day.at) if day.size == 2 else day.at[0] - 48
    return time_at(
        <int> of_year, number, of_day, two_digits(clock.at), two_digits(clock.at + 3),
        two_digits(clock.at + 6), True,
    )


cdef inline Time short_time(Span text) noexcept nogil:
    """Of `081109 203615` or `17/06/09 20:10:40`, in this century."""
    cdef const uint8_t* p = text.at
    cdef Time time
    time.micros = 0
    time.is_there = time.is_local = False
    if text.size == 13:
        return time_at(
            2000 + two_digits(p), two_digits(p + 2), two_digits(p + 4), two_digits(p + 7),
            two_digits(p + 9), two_digits(p + 11), True,
        )
    if text.size == 17:
        return time_at(
            2000 + two_digits(p), two_digits(p + 3), two_digits(p + 6), two_digits(p + 9),
            two_digits(p + 12), two_digits(p + 15), True,
        )
    return time
