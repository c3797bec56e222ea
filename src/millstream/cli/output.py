"""Printing for people and for programs: aligned columns, or JSON that is always valid."""

import json
from collections.abc import Iterable, Sequence

import click

JsonValue = str | int | float | bool | None | Sequence["JsonValue"] | dict[str, "JsonValue"]


def print_json(value: JsonValue) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns that also survive `awk`: no borders, no spaces inside a heading."""
    lines = [list(headings), *[[str(cell) for cell in row] for row in rows]]
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
        click.echo("  ".join(cells).rstrip())


def counted(count: int, noun: str) -> str:
    """`1 record`, `2 records`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def joined(ids: Iterable[int]) -> str:
    """Ids of nodes, as one word of a table."""
    return ",".join(str(each) for each in ids)


def _looks_like_number(text: str) -> bool:
    return text.lstrip("-").replace(",", "").isdigit()
