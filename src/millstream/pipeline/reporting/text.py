"""A report as Markdown and as one HTML page with its plots inside; nothing to load.

Many logs have no page views, no services, no errors. A section without a figure is only named at
the end; columns, charts, and rows of a chart's table without one are left out, and long texts
are cut. The files of a section have everything.
"""

import html
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from millstream.pipeline.reporting.charts import bar, column_chart

_UNITS: Final = (("_percent", " (%)"), ("_ms", " (ms)"))
# That there were no errors is news.
_ALWAYS_SHOWN: Final = frozenset({"lines", "errors"})
# Of a message that is a whole page, the beginning says what it is.
_TEXT_CHARACTERS_MAX: Final = 200
_SIZES: Final = ("bytes", "kB", "MB", "GB", "TB")


@dataclass(frozen=True, slots=True)
class Section:
    # Also of its files: NAME.csv and NAME.parquet.
    name: str
    title: str
    # The first column names the row.
    table: pa.Table
    note: str = ""
    # The column that is drawn as a bar in each row.
    bar: str | None = None
    # Columns that are drawn over all rows, one chart each.
    charts: tuple[str, ...] = ()
    # Two rows, this period and the one before: shown as large figures.
    is_summary: bool = False


def _without_figures(table: pa.Table) -> list[str]:
    """Columns of numbers that are all missing or 0."""
    names = [name for name in table.schema.names if _is_number(table, name)]
    return [name for name in names if not any(table[name].to_pylist())]


def _says_something(section: Section) -> bool:
    table = section.table
    numbers = sum(_is_number(table, name) for name in table.schema.names)
    return section.is_summary or len(_without_figures(table)) < numbers


def _silent(sections: list[Section]) -> str:
    """A sentence; empty if every section says something."""
    names = [section.name for section in sections if not _says_something(section)]
    return f"Nothing was found for: {', '.join(names)}." if names else ""


def heading(column: str) -> str:
    """`p95_ms` is `p95 (ms)`."""
    for suffix, unit in _UNITS:
        if column.endswith(suffix):
            return column.removesuffix(suffix).replace("_", " ") + unit
    return column.replace("_", " ")


def cell(column: str, value: object) -> str:
    if value is None:
        return ""
    if column.startswith("bytes") and isinstance(value, int):
        return _size(value)
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.3g}" if value else "0"
    return f"{value:,}" if isinstance(value, int) else _cut(str(value))


def _cut(text: str) -> str:
    if len(text) <= _TEXT_CHARACTERS_MAX:
        return text
    return text[:_TEXT_CHARACTERS_MAX] + "\u2026"


def _size(value: int) -> str:
    size = float(value)
    for unit in _SIZES:
        if size < 1000 or unit == _SIZES[-1]:
            return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:.3g} {unit}"
        size /= 1000
    raise AssertionError("the last unit is large enough")


# -- Markdown --------------------------------------------------------------------------------


def as_markdown(title: str, note: str, sections: list[Section]) -> str:
    parts = [f"# {title}", note]
    for section in filter(_says_something, sections):
        parts.append(f"## {section.title}")
        if section.note:
            parts.append(section.note)
        if left_out := _left_out(section):
            parts.append(left_out)
        parts.append(_markdown_table(_rows_shown(section)))
    if silent := _silent(sections):
        parts.append(silent)
    return "\n\n".join(parts) + "\n"


def _shown(section: Section) -> pa.Table:
    """Figures of the summary are compared with those of other reports: they are always there."""
    table = section.table
    if section.is_summary:
        return table
    empty = [name for name in table.schema.names if table[name].null_count == len(table)]
    return table.drop_columns(list({*_without_figures(table), *empty}))


def _rows_shown(section: Section) -> pa.Table:
    """Of hours or days, those in which there was something; the chart has them all."""
    table = _shown(section)
    if not section.charts:
        return table
    numbers = [name for name in table.schema.names if _is_number(table, name)]
    return table.filter([any(row[name] for name in numbers) for row in table.to_pylist()])


def _left_out(section: Section) -> str:
    """A sentence; empty if every row is shown."""
    count, shown = len(section.table), len(_rows_shown(section))
    name = heading(section.table.schema.names[0])
    return f"{count - shown} of {count} {name}s had no lines." if shown < count else ""


def _markdown_table(table: pa.Table) -> str:
    names = table.schema.names
    marks = ["---:" if _is_number(table, name) else "---" for name in names]
    rows = [[heading(name) for name in names], marks]
    rows += [[_plain(cell(name, row[name])) for name in names] for row in table.to_pylist()]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _plain(text: str) -> str:
    return text.replace("|", "\\|")


def _is_number(table: pa.Table, name: str) -> bool:
    return bool(table.schema.field(name).type != pa.string())


# -- HTML ------------------------------------------------------------------------------------


def as_html(title: str, note: str, sections: list[Section]) -> str:
    body = "".join(_section_html(section) for section in filter(_says_something, sections))
    if silent := _silent(sections):
        body += f"<section><p class=note>{html.escape(silent)}</p></section>"
    return (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width'>"
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style>"
        f"<h1>{html.escape(title)}</h1><p class=note>{html.escape(note)}</p>{body}</html>\n"
    )


def _section_html(section: Section) -> str:
    head = f"<section><h2>{html.escape(section.title)}</h2>"
    if section.note:
        head += f"<p class=note>{html.escape(section.note)}</p>"
    if section.is_summary:
        return head + _figures_html(section.table) + "</section>"
    table = _table_html(section)
    if section.bar is not None and section.bar.startswith("errors"):
        table = f"<div class=bad>{table}</div>"
    if section.charts:
        shown = _shown(section)
        drawn = [name for name in section.charts if name in shown.schema.names]
        charts = "".join(_chart_html(shown, name) for name in drawn)
        left_out = _left_out(section)
        table = f"{charts}<details><summary>as a table</summary>{table}</details>"
        table += f"<p class=note>{html.escape(left_out)}</p>" if left_out else ""
    return f"{head}{table}</section>"


def _chart_html(table: pa.Table, name: str) -> str:
    values = [float(value or 0) for value in table[name].to_pylist()]
    labels = [str(label) for label in table[0].to_pylist()]
    texts = [cell(name, value) or "0" for value in table[name].to_pylist()]
    drawn = column_chart(labels, values, texts, largest=cell(name, max(values, default=0.0)))
    kind = " class=bad" if name.startswith("errors") else ""
    return f"<figure{kind}><figcaption>{html.escape(heading(name))}</figcaption>{drawn}</figure>"


def _figures_html(table: pa.Table) -> str:
    now, before = table.to_pylist()
    first, *names = table.schema.names
    silent = set(_without_figures(table)) - _ALWAYS_SHOWN
    figures = "".join(
        f"<div><span>{html.escape(_without_unit(name))}</span>"
        f"<b>{_with_unit(name, now[name])}</b>"
        f"<small>{html.escape(_change(name, now[name], before[name]))}</small></div>"
        for name in names
        if name not in silent
    )
    note = f"Small figures: the {first} before, and the change since."
    return f"<div class=figures>{figures}</div><p class=note>{note}</p>"


def _without_unit(name: str) -> str:
    return {"errors_percent": "errors in lines"}.get(name, heading(name))


def _with_unit(name: str, value: object) -> str:
    text = cell(name, value)
    return f"{text} %" if text and name.endswith("_percent") else text or "–"


def _change(name: str, now: Any, before: Any) -> str:
    if not before:
        return _with_unit(name, before)
    change = 100 * ((now or 0) - before) / before
    return f"{_with_unit(name, before)}, {change:+,.0f} %"


def _table_html(section: Section) -> str:
    table = _rows_shown(section)
    names = table.schema.names
    drawn = section.bar if section.bar in names else None
    kinds = {name: " class=n" if _is_number(table, name) else "" for name in names}
    head = "".join(f"<th{kinds[name]}>{html.escape(heading(name))}</th>" for name in names)
    rows = []
    largest = max((row or 0 for row in table[drawn].to_pylist()), default=0) if drawn else 0
    for row in table.to_pylist():
        cells = "".join(
            f"<td{kinds[name]}>{html.escape(cell(name, row[name]))}</td>" for name in names
        )
        if drawn:
            cells += f"<td>{bar((row[drawn] or 0) / largest if largest else 0.0)}</td>"
        rows.append(f"<tr>{cells}</tr>")
    head += f"<th>{html.escape(heading(drawn))}</th>" if drawn else ""
    return f"<div class=wide><table><tr>{head}</tr>{''.join(rows)}</table></div>"


_STYLE: Final = (
    ":root{color-scheme:light dark;--ink:#1c2733;--soft:#67727e;--line:#d9dee3;--bar:#3b76b4;"
    "--bad:#b5523f}"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6e9ec;--soft:#9aa5b0;--line:#39424b;"
    "--bar:#6fa4dc;--bad:#e08a78}}"
    "body{font:15px/1.45 system-ui,sans-serif;color:var(--ink);margin:2em auto;max-width:62em;"
    "padding:0 1em}h1{font-size:1.6em;margin-bottom:.1em}h2{font-size:1.15em;margin:0 0 .2em}"
    "section{border-top:1px solid var(--line);padding:1.2em 0}"
    ".note,small,span,summary,figcaption{color:var(--soft)}.note{margin:.1em 0 .8em}"
    ".wide{overflow-x:auto}table{border-collapse:collapse}"
    "td,th{padding:.25em 1.2em .25em 0;text-align:left;vertical-align:top;"
    "font-variant-numeric:tabular-nums}th{font-weight:600;border-bottom:1px solid var(--line)}"
    "td{max-width:24em;overflow-wrap:anywhere}.n{text-align:right;white-space:nowrap}"
    ".figures{display:flex;flex-wrap:wrap;gap:.4em 2.4em;margin-bottom:.6em}"
    ".figures div{display:grid}"
    ".figures b{font-size:1.7em;font-variant-numeric:tabular-nums}"
    "figure{margin:0 0 1em}svg{color:var(--bar);vertical-align:middle}.bad svg{color:var(--bad)}"
    "svg text{fill:var(--soft);font-size:11px}svg line{stroke:var(--line)}"
    "figure svg{width:100%;height:auto}"
)
