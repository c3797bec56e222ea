# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Numbers as text; `_times_pure` reads the same ones."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint64_t

from millstream.lines._text cimport DIGIT, Span, is_at, is_in, skip, stripped

cdef extern from "Python.h":
    double PyOS_string_to_double(const char* text, char** end, object overflow) except? -1.0

cdef extern from *:
    """
    static const double ms_tens[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10,
                                     1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
                                     1e21, 1e22};
    """
    const double* ms_tens


cdef inline bint read_integer(Span text, int bits, int64_t* number) noexcept nogil:
    """A signed number that fits."""
    cdef uint64_t found = 0, limit = (<uint64_t> 1) << (bits - 1)
    cdef bint is_negative
    cdef const uint8_t* p
    cdef const uint8_t* end
    if text.size <= 0:
        return False
    text = stripped(text)
    p, end = text.at, text.at + text.size
    is_negative = is_at(p, end, b'-')
    if is_negative or is_at(p, end, b'+'):
        p += 1
    if p == end or skip(p, end, DIGIT) != end:
        return False
    while p < end:
        # Before it would be more than 64 bits hold.
        if found > limit // 10:
            return False
        found = found * 10 + (p[0] - 48)
        p += 1
    if found > limit or (found == limit and not is_negative):
        return False
    number[0] = <int64_t> (0 - found) if is_negative else <int64_t> found
    return True


cdef inline double read_slowly(Span text) noexcept with gil:
    cdef double number
    copied = PyBytes_FromStringAndSize(<const char*> text.at, text.size)
    try:
        number = PyOS_string_to_double(PyBytes_AS_STRING(copied), NULL, OverflowError)
    except (ValueError, OverflowError):
        return float("inf")
    return number


cdef inline bint read_double(Span text, double* number) noexcept nogil:
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


cdef inline bint read_request_ms(Span rest, double* number) noexcept nogil:
    """Some servers write the time a request took, in seconds, at the end of the line."""
    cdef const uint8_t* p
    cdef const uint8_t* end
    if rest.size <= 0:
        return False
    end = rest.at + rest.size
    p = skip(rest.at, end, DIGIT)
    if p == rest.at or not is_at(p, end, b'.') or p + 1 == end or skip(p + 1, end, DIGIT) != end:
        return False
    if not read_double(rest, number):
        return False
    number[0] *= 1000
    return number[0] - number[0] == 0
