"""Patterns of lines, such as `<time:%m-%d %H:%M:%S.%f> <pid> <level> <tag>: <message>`, as steps.

A pattern is text with fields in angle brackets; `<<` stands for a `<`. It is compiled once, into
steps that a scanner takes from left to right without going back:

- a LITERAL must be there; where it has blanks, the line has one or more blanks or tabs;
- a WORD, `<name>`, ends before a space or the literal behind it, which padding may precede;
- a WIDE one, `<name...>`, ends before the first occurrence of the literal behind it;
- a TIME is read by its format, or as ISO or a number since 1970 where it has none.

The last field takes the rest of the line. A name means what it means in a JSON line (`layouts`);
`<_>` is read and dropped. Knows text only: `_patterns.pxd` and `_patterns_pure` read lines.
"""

import itertools
import re
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from millstream.lines.layouts import ALIASES

PATTERN_CHARACTERS_MAX: Final = 1000
IGNORED: Final = "_"
# `strptime`'s letters, as far as lines have them; %e is a day, %s seconds since 1970.
DIRECTIVES: Final = "YymdebaHIMSfpzZs%"
_FIELD = re.compile(r"<(?P<name>[A-Za-z_@][\w.@-]*?)(?P<wide>\.\.\.)?(?::(?P<format>[^<>]+))?>")
_BLANKS = re.compile(r"[ \t]+")


class PatternError(ValueError):
    """The pattern is wrong; the text says where, and what to write instead."""


class StepKind(IntEnum):
    """`_patterns.pxd` knows these numbers."""

    LITERAL = 0
    WORD = 1
    WIDE = 2
    TIME = 3


@dataclass(frozen=True, slots=True)
class Step:
    kind: StepKind
    # Of a field; empty if it is dropped.
    name: str
    # The literal with single blanks, or the format of the time.
    text: bytes


Steps = tuple[Step, ...]


def compile_pattern(pattern: str) -> Steps:
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        raise PatternError(f"longer than {PATTERN_CHARACTERS_MAX:,} characters")
    steps = _steps(pattern.strip(" \t"))
    _check_order(steps)
    _check_names(steps)
    return tuple(steps)


def _steps(pattern: str) -> list[Step]:
    steps: list[Step] = []
    literal, at = "", 0
    while at < len(pattern):
        if pattern.startswith("<<", at) or pattern[at] != "<":
            literal += pattern[at]
            at += 2 if pattern[at] == "<" else 1
            continue
        field = _FIELD.match(pattern, at)
        if field is None:
            raise PatternError(
                f"{pattern[at : at + 20]!r} is not a field such as <level>, <thread...> or "
                f"<time:%H:%M:%S>; for the sign itself write <<"
            )
        steps += _literal(literal)
        steps.append(_field(field))
        literal, at = "", field.end()
    return steps + _literal(literal)


def _literal(text: str) -> list[Step]:
    return [Step(StepKind.LITERAL, "", _BLANKS.sub(" ", text).encode())] if text else []


def _field(found: re.Match[str]) -> Step:
    name, time_format = found["name"], found["format"]
    kept = "" if name == IGNORED else name
    if time_format is None and name not in ALIASES["time"]:
        return Step(StepKind.WIDE if found["wide"] else StepKind.WORD, kept, b"")
    if found["wide"]:
        raise PatternError(f"{found[0]} is a time: it ends where its format ends, without ...")
    if time_format is not None:
        _check_time_format(time_format)
    return Step(StepKind.TIME, kept, _BLANKS.sub(" ", time_format or "").encode())


def _check_time_format(text: str) -> None:
    directives = re.findall("%(.?)", text, re.DOTALL)
    for each in directives:
        if not each or each not in DIRECTIVES:
            known = ", ".join(f"%{letter}" for letter in DIRECTIVES)
            raise PatternError(f"%{each} in {text!r} is not one of {known}")
    found = set(directives)
    has_month, has_day = bool(found & {"m", "b"}), bool(found & {"d", "e"})
    if "s" in found:
        return
    if has_month != has_day:
        raise PatternError(f"{text!r} needs a month (%m, %b) and a day (%d, %e), or neither")
    if found & {"Y", "y"} and not has_month:
        raise PatternError(f"{text!r} has a year, and so needs a month and a day")
    if not has_month and not found & {"H", "I"}:
        raise PatternError(f"{text!r} has neither a day nor an hour (%H)")
    if "I" in found and "p" not in found:
        raise PatternError(f"{text!r} has an hour up to 12 (%I), and so needs AM or PM (%p)")


def _check_order(steps: list[Step]) -> None:
    for step, behind in itertools.pairwise(steps):
        is_open = step.kind in (StepKind.WORD, StepKind.WIDE) or (
            step.kind is StepKind.TIME and not step.text
        )
        if is_open and behind.kind is not StepKind.LITERAL:
            raise PatternError(
                f"nothing separates <{step.name or IGNORED}> from <{behind.name or IGNORED}>: "
                "write text or a blank between them"
            )


def _check_names(steps: list[Step]) -> None:
    names = [step.name for step in steps if step.name]
    for name in names:
        if names.count(name) > 1:
            raise PatternError(f"<{name}> is there twice; <_> drops what is not needed")
    times = [step for step in steps if step.kind is StepKind.TIME]
    if len(times) != 1:
        raise PatternError(
            f"it has {len(times)} times; every line needs one, such as <time> or "
            "<time:%Y-%m-%d %H:%M:%S>"
        )
