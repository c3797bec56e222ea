"""A pattern for lines that no format reads, guessed from the lines themselves.

A few lines each propose one: their time, then the words around it by what they look like. The
pattern that reads the most lines wins. A proposal is for a person to look at and to edit.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from millstream.lines._patterns_pure import read_line
from millstream.lines.layouts import LEVEL_LETTERS, LEVELS
from millstream.lines.line_patterns import PatternError, Steps, compile_pattern

_LINES_MAX: Final = 500
_PROPOSING_MAX: Final = 25
_LINE_BYTES_MAX: Final = 4096
# How far into a line its time is looked for.
_HEAD_CHARACTERS: Final = 160
# Of fewer lines a pattern says nothing.
_SHARE_MIN: Final = 0.5
_WORDS_MAX: Final = 8

_DATES: Final = (
    (re.compile(r"\d{4}([-/.])\d\d?\1\d\d?"), "%Y{0}%m{0}%d"),
    (re.compile(r"\d\d?([-/ ])[A-Z][a-z]{2}\1\d{4}"), "%d{0}%b{0}%Y"),
    (re.compile(r"[A-Z][a-z]{2} [A-Z][a-z]{2} +\d\d?"), "%a %b %e"),
    (re.compile(r"[A-Z][a-z]{2} +\d\d?"), "%b %e"),
    (re.compile(r"(?:1[3-9]|2\d|3[01])([-/.])\d\d?\1\d{4}"), "%d{0}%m{0}%Y"),
    (re.compile(r"\d\d?(\.)\d\d?\.\d{4}"), "%d{0}%m{0}%Y"),
    (re.compile(r"\d\d?([-/])\d\d?\1\d{4}"), "%m{0}%d{0}%Y"),
    (re.compile(r"\d\d?([-/.])\d\d?\1\d\d"), "%m{0}%d{0}%y"),
    (re.compile(r"\d{8}(?=\D)"), "%Y%m%d"),
    (re.compile(r"(?:1[3-9]|2\d|3[01])([-/.])\d\d"), "%d{0}%m"),
    (re.compile(r"\d\d?([-/.])\d\d?"), "%m{0}%d"),
)
_BETWEEN = re.compile(r" +| ?- ?|[T_:,]|, ")
_CLOCK = re.compile(r"(\d\d?):\d\d(:\d\d)?(?:([.,:])\d{1,9})?")
_HALF_DAY = re.compile(r" ?[AaPp][Mm]\b")
_ZONE = re.compile(r" ?(?:[+-]\d\d:?\d\d|Z)\b")
_YEAR = re.compile(r" \d{4}\b")
_SINCE_1970 = re.compile(r"(?<![\w.])1\d{9}(?:\d{3}|\d{6}|\d{9}|\.\d{1,9})?(?![\w.])")
_ISO = re.compile(r"%Y([-/])%m\1%d[T ]%H:%M:%S(?:[.,]%f)?(?: ?%z)?")
_WORD = re.compile(r"[^\s\[\](){}|,;:]+")
_LITERAL = re.compile(r"[\s\[\](){}|,;:-]+")
_BRACKETED = re.compile(r"[^\[\]]+(?=\])")
_PROGRAM_ENDS = re.compile(r"(?:\[\d+\])?:(?:\s|$)| - |\|")
_PROGRAM = re.compile(r"[a-z][a-z_-]+")
_LEVEL_NAMES: Final = {*LEVELS, "warning", "severe", "verbose"}


@dataclass(frozen=True, slots=True)
class Suggestion:
    pattern: str
    # Of the lines that were looked at, those that it reads.
    share: float


def suggest_pattern(lines: Sequence[bytes], *, record_us: int) -> Suggestion | None:
    """The pattern that reads most of these lines, if that is at least half of them."""
    looked_at = [cleaned(line) for line in lines[:_LINES_MAX]]
    best: Suggestion | None = None
    for pattern in dict.fromkeys(_proposals(looked_at)):
        steps = _compiled(pattern)
        if steps is None:
            continue
        read = sum(read_line([steps], line, record_us) is not None for line in looked_at)
        share = read / len(looked_at)
        if share >= _SHARE_MIN and (best is None or share > best.share):
            best = Suggestion(pattern, share)
    return best


def cleaned(line: bytes) -> bytes:
    text = line[:_LINE_BYTES_MAX].decode(errors="replace")
    return text.rstrip(" \r\n").removeprefix("\ufeff").encode()


def _compiled(pattern: str) -> Steps | None:
    try:
        return compile_pattern(pattern)
    except PatternError:
        return None


def _proposals(lines: Sequence[bytes]) -> Iterator[str]:
    """From lines spread over all of them, in the order of the lines."""
    step = max(1, len(lines) // _PROPOSING_MAX)
    for line in lines[::step]:
        text = line.decode()
        if (found := find_time(text)) is not None:
            start, end, field = found
            names = _Names()
            yield _before(text[:start], names) + field + _behind(text[end:], names)


# -- the time ----------------------------------------------------------------------------------


def find_time(text: str) -> tuple[int, int, str] | None:
    """Where the first time is, and its field."""
    head = text[:_HEAD_CHARACTERS]
    for start in range(len(head)):
        if start and head[start - 1].isalnum():
            continue
        if (dated := _dated(head, start)) is not None:
            return start, dated[0], dated[1]
        if since := _SINCE_1970.match(head, start):
            return start, since.end(), "<time:%s>"
    clock = _CLOCK.search(head)
    if clock is None or clock[2] is None:
        return None
    end, clock_format = _clock_format(head, clock)
    return clock.start(), end, f"<time:{clock_format}>"


def _dated(head: str, start: int) -> tuple[int, str] | None:
    """Where a date and a clock from here on end, and their field."""
    for date, date_format in _DATES:
        found = date.match(head, start)
        between = _BETWEEN.match(head, found.end()) if found else None
        clock = _CLOCK.match(head, between.end()) if between else None
        if found is None or between is None or clock is None:
            continue
        separator = found[1] if found.re.groups else ""
        end, clock_format = _clock_format(head, clock)
        whole = date_format.format(separator) + between[0] + clock_format
        if "%Y" not in whole and (year := _YEAR.match(head, end)):
            end, whole = year.end(), whole + " %Y"
        return end, "<time>" if _ISO.fullmatch(whole) else f"<time:{whole}>"
    return None


def _clock_format(head: str, clock: re.Match[str]) -> tuple[int, str]:
    text = "%H:%M" + (":%S" if clock[2] else "")
    if clock[3] and clock[2]:
        text += clock[3] + "%f"
        end = clock.end()
    else:
        end = clock.end(2) if clock[2] else clock.start(3) if clock[3] else clock.end()
    if half := _HALF_DAY.match(head, end):
        text = text.replace("%H", "%I") + (" %p" if half[0].startswith(" ") else "%p")
        end = half.end()
    if zone := _ZONE.match(head, end):
        text += " %z" if zone[0].startswith(" ") else "%z"
        end = zone.end()
    return end, text


# -- the words around it -----------------------------------------------------------------------


class _Names:
    """Names for words, each given once."""

    def __init__(self) -> None:
        self._given: set[str] = set()

    def first_free(self, *names: str) -> str:
        numbered = (f"field{number}" for number in range(1, 100))
        name = next(name for name in (*names, *numbered) if name not in self._given)
        self._given.add(name)
        return name

    def is_free(self, name: str) -> bool:
        return name not in self._given


def _before(text: str, names: _Names) -> str:
    """All of it is fields and what separates them."""
    pattern, at = "", 0
    while at < len(text):
        if literal := _LITERAL.match(text, at):
            pattern += escaped(literal[0])
            at = literal.end()
            continue
        word = re.compile(r"\S+").match(text, at)
        assert word is not None
        pattern += f"<{names.first_free(*_names_before(word[0], text))}>"
        at = word.end()
    return pattern


def _names_before(word: str, text: str) -> tuple[str, ...]:
    """`text`: all that is before the time."""
    if word.isdecimal():
        return ("id",)
    if _is_level(word):
        return ("level",)
    is_alone = word == text.strip()
    return ("program",) if is_alone and _PROGRAM.fullmatch(word) else ()


def _behind(text: str, names: _Names) -> str:
    pattern, at = "", 0
    for _ in range(_WORDS_MAX):
        if literal := _LITERAL.match(text, at):
            pattern += escaped(literal[0])
            at = literal.end()
        found = _word_field(text, at, names)
        if found is None:
            break
        pattern += found[1]
        at = found[0]
        if _ends_header(text, at):
            break
    literal = _LITERAL.match(text, at)
    ends = literal[0] if literal else ""
    if pattern.endswith(">"):
        pattern += escaped(ends) or " "
    return pattern + "<message>"


def _ends_header(text: str, at: int) -> bool:
    """A program and a colon, or a dash, are the last of what is before a message."""
    return re.compile(r"\]?:\s| - ").match(text, at) is not None


def _word_field(text: str, at: int, names: _Names) -> tuple[int, str] | None:
    """Behind the word here, and its field; None where a message begins."""
    if at and text[at - 1] == "[" and (inside := _BRACKETED.match(text, at)):
        if inside[0].isdecimal():
            return inside.end(), f"<{names.first_free('pid', 'tid')}>"
        if inside[0].lower() not in _LEVEL_NAMES:
            wide = "..." if " " in inside[0] else ""
            return inside.end(), f"<{names.first_free('thread')}{wide}>"
    word = _WORD.match(text, at)
    if word is None:
        return None
    if _is_level(word[0]) and names.is_free("level"):
        return word.end(), f"<{names.first_free('level')}>"
    if word[0].isdecimal():
        return word.end(), f"<{names.first_free('pid', 'tid')}>"
    if _PROGRAM_ENDS.match(text, word.end()) and names.is_free("program"):
        return word.end(), f"<{names.first_free('program')}>"
    return None


def _is_level(word: str) -> bool:
    return word.lower() in _LEVEL_NAMES or (word.isupper() and word.lower() in LEVEL_LETTERS)


def escaped(literal: str) -> str:
    return re.sub(r"\s+", " ", literal).replace("<", "<<")
