# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Bytes of a line: spans of it, classes of letters, and steps over them.

A pointer that a step returns is never behind `end`; NULL says that the text is not so.
"""

from libc.stdint cimport uint8_t
from libc.string cimport memchr, memcmp

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    enum { MS_SPACE = 1, MS_DIGIT = 2, MS_UPPER = 4, MS_LOWER = 8, MS_UNDERSCORE = 16,
           MS_NAME = 32, MS_PROGRAM = 64, MS_STRING_END = 128 };
    #define MS_LETTER (MS_UPPER | MS_LOWER)
    #define MS_WORD (MS_DIGIT | MS_UPPER | MS_LOWER | MS_UNDERSCORE)
    static uint8_t ms_classes[256];

    static void ms_classes_begin(void) {
        for (int c = 0; c < 256; c++) {
            uint8_t found = 0;
            if (c == ' ' || (c >= 9 && c <= 13)) found |= MS_SPACE;
            if (c >= '0' && c <= '9') found |= MS_DIGIT;
            if (c >= 'A' && c <= 'Z') found |= MS_UPPER;
            if (c >= 'a' && c <= 'z') found |= MS_LOWER;
            if (c == '_') found |= MS_UNDERSCORE;
            if ((found & MS_WORD) || (c && strchr(".@/-", c))) found |= MS_NAME;
            if ((found & MS_WORD) || (c && strchr(".$*-", c))) found |= MS_PROGRAM;
            if (c == '"' || c == 92 || c < 0x20) found |= MS_STRING_END;
            ms_classes[c] = found;
        }
    }

    /* 8 bytes at a time while they are ASCII, which most lines are all the way. */
    static int ms_is_utf8(const uint8_t *p, const uint8_t *end) {
        while (p < end) {
            if (end - p >= 8) {
                uint64_t word; memcpy(&word, p, 8);
                if (!(word & 0x8080808080808080ull)) { p += 8; continue; }
            }
            uint8_t c = *p;
            if (c < 0x80) { p++; continue; }
            int more = c >= 0xC2 && c <= 0xDF ? 1 : c >= 0xE0 && c <= 0xEF ? 2
                     : c >= 0xF0 && c <= 0xF4 ? 3 : 0;
            if (!more || end - p <= more) return 0;
            uint8_t low = c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80;
            uint8_t high = c == 0xED ? 0x9F : c == 0xF4 ? 0x8F : 0xBF;
            if (p[1] < low || p[1] > high) return 0;
            for (int i = 2; i <= more; i++) if ((p[i] & 0xC0) != 0x80) return 0;
            p += more + 1;
        }
        return 1;
    }
    """
    const uint8_t* ms_classes
    void ms_classes_begin() noexcept nogil
    int ms_is_utf8(const uint8_t* p, const uint8_t* end) noexcept nogil
    enum:
        SPACE "MS_SPACE"
        DIGIT "MS_DIGIT"
        UPPER "MS_UPPER"
        LOWER "MS_LOWER"
        LETTER "MS_LETTER"
        WORD "MS_WORD"
        NAME "MS_NAME"
        PROGRAM "MS_PROGRAM"
        STRING_END "MS_STRING_END"


cdef struct Span:
    const uint8_t* at
    # -1: there is none.
    Py_ssize_t size


cdef inline bint is_in(uint8_t letter, int kinds) noexcept nogil:
    return ms_classes[letter] & kinds != 0


cdef inline void put(Span* span, const uint8_t* start, const uint8_t* end) noexcept nogil:
    span.at = start
    span.size = end - start


cdef inline bint is_at(const uint8_t* p, const uint8_t* end, uint8_t letter) noexcept nogil:
    return p < end and p[0] == letter


cdef inline bint is_text_at(
    const uint8_t* p, const uint8_t* end, const char* text, Py_ssize_t size
) noexcept nogil:
    return end - p >= size and memcmp(p, text, size) == 0


cdef inline bint are_in(
    const uint8_t* p, const uint8_t* end, Py_ssize_t count, int kinds
) noexcept nogil:
    """Whether so many letters are all of these kinds."""
    cdef Py_ssize_t i
    if end - p < count:
        return False
    for i in range(count):
        if not ms_classes[p[i]] & kinds:
            return False
    return True


cdef inline const uint8_t* skip(const uint8_t* p, const uint8_t* end, int kinds) noexcept nogil:
    """Behind the letters of these kinds."""
    while p < end and ms_classes[p[0]] & kinds:
        p += 1
    return p


cdef inline const uint8_t* skip_not(
    const uint8_t* p, const uint8_t* end, int kinds
) noexcept nogil:
    """At the first letter of these kinds, or the end."""
    while p < end and not ms_classes[p[0]] & kinds:
        p += 1
    return p


cdef inline const uint8_t* skip_blanks(const uint8_t* p, const uint8_t* end) noexcept nogil:
    while p < end and p[0] == b' ':
        p += 1
    return p


cdef inline const uint8_t* find(
    const uint8_t* p, const uint8_t* end, uint8_t letter
) noexcept nogil:
    return <const uint8_t*> memchr(p, letter, end - p) if p < end else NULL


cdef inline const uint8_t* read_word(
    const uint8_t* p, const uint8_t* end, Span* word
) noexcept nogil:
    """Anything but spaces and one blank: behind the blank."""
    cdef const uint8_t* behind = skip_not(p, end, SPACE)
    if behind == p or not is_at(behind, end, b' '):
        return NULL
    put(word, p, behind)
    return behind + 1


cdef inline const uint8_t* find_quote(const uint8_t* p, const uint8_t* end) noexcept nogil:
    """The next quote that no backslash is before."""
    while p < end:
        if p[0] == b'"':
            return p
        p += 2 if p[0] == b'\\' and end - p > 1 else 1
    return NULL


cdef inline Span stripped(Span text) noexcept nogil:
    """Without the spaces around it."""
    while text.size > 0 and is_in(text.at[0], SPACE):
        text.at += 1
        text.size -= 1
    while text.size > 0 and is_in(text.at[text.size - 1], SPACE):
        text.size -= 1
    return text


cdef inline int two_digits(const uint8_t* p) noexcept nogil:
    return (p[0] - 48) * 10 + p[1] - 48
