"""Printing for people and for programs: aligned columns, or JSON that is always valid.

Names, keys and metadata come from clients that anybody may have written, and a terminal obeys
what it is sent: everything that is printed as text goes through `echo`, which escapes control
characters. JSON escapes them in its own way and stays JSON. Records are bytes: a pipe gets them as
they are, a terminal gets `terminal_bytes` of them.
"""

import errno
import json
import select
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final

import click

JsonValue = str | int | float | bool | None | Sequence["JsonValue"] | dict[str, "JsonValue"]


# What lays out lines. A carriage return alone would put new text over what stands there.
_LAYOUT: Final = frozenset("\n\t")
_LINE_END: Final = "\r\n"
# Controls, directions that reorder what follows, separators of lines, halves of characters.
_ESCAPED: Final = frozenset({"Cc", "Cf", "Zl", "Zp", "Cs"})


def escaped(text: str) -> str:
    """The text with every character spelled out that a terminal would act upon."""
    if text.isprintable():
        return text
    return _LINE_END.join(
        "".join(_spelled(character) for character in line) for line in text.split(_LINE_END)
    )


def _spelled(character: str) -> str:
    if character in _LAYOUT or not _is_obeyed(character):
        return character
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def _is_obeyed(character: str) -> bool:
    return unicodedata.category(character) in _ESCAPED


def terminal_bytes(data: bytes) -> bytes:
    """A part of a record for a terminal: controls, and bytes that are no UTF-8, are spelled out."""
    return escaped(data.decode(errors="backslashreplace")).encode()


def json_text(value: JsonValue, *, indent: int | None = None) -> str:
    """JSON that a terminal may get: what it would act upon is escaped, and it stays the same value.

    JSON itself escapes only the first 32 controls, and json.dumps all that is not ASCII or nothing.
    """
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(_spelled_in_json(character) for character in text)


def _spelled_in_json(character: str) -> str:
    if character == "\n" or not _is_obeyed(character):
        return character
    # Two escapes beyond 16 bits, as JSON has it.
    return json.dumps(character)[1:-1]


def echo(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a line of text."""
    click.echo(escaped(str(text)), err=err, nl=nl)


def print_json(value: JsonValue) -> None:
    click.echo(json_text(value, indent=2))


def print_outcome(text: str, value: JsonValue, *, as_json: bool) -> None:
    """What a command has done: a line on stderr for a person, or a document for a program."""
    if as_json:
        print_json(value)
    else:
        echo(text, err=True)


def print_line_json(value: JsonValue) -> None:
    """For a command that goes on: one line on stdout, there at once even through a pipe."""
    click.echo(json_text(value))
    sys.stdout.flush()


def print_error_json(text: str, exit_code: int) -> None:
    """A failure for a program: one line on stderr."""
    click.echo(json_text({"error": {"message": text, "exit_code": int(exit_code)}}), err=True)


def print_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns that also survive `awk`: no borders, no spaces inside a heading. None is `-`."""
    lines = [list(headings), *[[_cell(cell) for cell in row] for row in rows]]
    is_number = [
        len(lines) > 1 and all(_looks_like_number(line[column]) for line in lines[1:])
        for column in range(len(headings))
    ]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    for line in lines:
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, is_number, strict=True)
        ]
        echo("  ".join(cells).rstrip())


def _cell(value: object) -> str:
    if value is None:
        return "-"
    # A line break or a tab inside a cell would make another row or column of it.
    text = escaped(str(value))
    return text.replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")


def counted(count: int, noun: str) -> str:
    """`1 record`, `2 records`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def joined(ids: Iterable[int]) -> str:
    """Ids of nodes, as one word of a table."""
    return ",".join(str(each) for each in ids)


def _looks_like_number(text: str) -> bool:
    return text == "-" or text.lstrip("-").replace(",", "").isdigit()


def check_output_open() -> None:
    """Raises BrokenPipeError if the reader of stdout has left, as `head` does.

    For commands that wait: a pipe reports this by itself only to those who write.
    """
    watched = select.poll()
    watched.register(sys.stdout.fileno(), 0)
    if watched.poll(0):
        raise BrokenPipeError(errno.EPIPE, "the reader of the output has left")
