"""A report as Markdown and as one HTML page with its plots inside; nothing to load."""

import html
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

_BAR_WIDTH: Final = 320
_BAR_HEIGHT: Final = 14


@dataclass(frozen=True, slots=True)
class Section:
    name: str
    title: str
    table: pa.Table
    # The column that is drawn as bars.
    plot: str | None = None


def as_markdown(title: str, sections: list[Section]) -> str:
    parts = [f"# {title}"]
    for section in sections:
        names = section.table.schema.names
        rows = [names, ["---"] * len(names), *_rows(section.table)]
        lines = ["| " + " | ".join(_plain(cell) for cell in row) + " |" for row in rows]
        parts.append(f"## {section.title}\n\n" + "\n".join(lines))
    return "\n\n".join(parts) + "\n"


def as_html(title: str, sections: list[Section]) -> str:
    body = "".join(_section_html(section) for section in sections)
    return (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style>"
        f"<h1>{html.escape(title)}</h1>{body}</html>\n"
    )


def _section_html(section: Section) -> str:
    names = section.table.schema.names
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    largest = _largest(section)
    rows = []
    for row in _rows(section.table):
        cells = "".join(f"<td>{html.escape(cell)}</td>" for cell in row)
        if section.plot is not None:
            number = float(row[names.index(section.plot)].replace(",", "") or 0)
            cells += f"<td>{_bar(number / largest if largest else 0.0)}</td>"
        rows.append(f"<tr>{cells}</tr>")
    head += "<th></th>" if section.plot is not None else ""
    return f"<h2>{html.escape(section.title)}</h2><table><tr>{head}</tr>{''.join(rows)}</table>"


def _largest(section: Section) -> float:
    if section.plot is None:
        return 0.0
    return max((float(each or 0) for each in section.table[section.plot].to_pylist()), default=0.0)


def _bar(share: float) -> str:
    width = round(_BAR_WIDTH * share)
    return (
        f'<svg width="{_BAR_WIDTH}" height="{_BAR_HEIGHT}" role="img" '
        f'aria-label="{share:.0%} of the largest">'
        f'<rect width="{width}" height="{_BAR_HEIGHT}" fill="currentColor"/></svg>'
    )


def _rows(table: pa.Table) -> list[list[str]]:
    return [[_cell(value) for value in row.values()] for row in table.to_pylist()]


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _plain(cell: str) -> str:
    return cell.replace("|", "\\|")


_STYLE: Final = (
    "body{font:15px system-ui,sans-serif;margin:2em auto;max-width:60em;padding:0 1em;"
    "color-scheme:light dark}table{border-collapse:collapse}"
    "td,th{padding:.2em .8em .2em 0;text-align:left;font-variant-numeric:tabular-nums}"
    "svg{color:#4a7ab5;vertical-align:middle}"
)
