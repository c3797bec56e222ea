"""Which kinds of messages a period has: the most frequent, the new, and those that vanished.

The messages of the period before are read first, by the same tree, so that a template has the
same number in both. Rows are read in the order of their records: the same table gives the
same report, whatever its files are.
"""

from collections.abc import Collection, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from millstream.lines.templates import Template, Templates, most_frequent
from millstream.pipeline.reporting.events import Events
from millstream.pipeline.reporting.periods import Kind, Period, period_of
from millstream.pipeline.reporting.text import Section

_TOP: Final = 15
_CHANGED_TOP: Final = 10
_SAMPLE_CHARACTERS: Final = 120
_ORDER: Final = ("topic", "partition", "offset")
_SCHEMA: Final = pa.schema(
    [
        ("template", pa.string()),
        ("messages", pa.int64()),
        ("messages_percent", pa.float64()),
        ("before", pa.int64()),
        ("state", pa.string()),
        ("sample", pa.string()),
    ]
)


def messages(events: Events, period: Period, columns: Collection[str]) -> Section:
    """Of a table that has these columns; its messages are added when there is one."""
    templates = Templates()
    if "message" not in columns:
        return _section([])
    order = [name for name in _ORDER if name in columns]
    [before] = period.before(1)
    _add_period(templates, events, before, order)
    has_before = templates.messages > 0
    templates.begin_period()
    _add_period(templates, events, period, order)
    # Where nothing was read before, everything is new, which says nothing.
    chosen = _chosen(templates.found(), has_before=has_before)
    return _section([_row(each, templates.messages, has_before=has_before) for each in chosen])


def _section(rows: list[dict[str, object]]) -> Section:
    return Section(
        "messages",
        "Messages",
        pa.Table.from_pylist(rows, schema=_SCHEMA),
        note="Messages by template: the most frequent, then those that are new or have vanished.",
        bar="messages",
    )


def _add_period(templates: Templates, events: Events, period: Period, order: Sequence[str]) -> None:
    """Day by day, so that no more than a day is in memory."""
    for day in period.days:
        rows = events.rows(
            period_of(Kind.DAILY, day, period.zone),
            [*order, "message"],
            where=pc.field("message").is_valid(),
        )
        if order:
            rows = rows.sort_by([(name, "ascending") for name in order])
        for chunk in rows.column("message").chunks:
            templates.add(chunk.cast(pa.string()))


def _chosen(templates: Sequence[Template], *, has_before: bool) -> list[Template]:
    top = most_frequent(templates, _TOP)
    if not has_before:
        return top
    new = [each for each in most_frequent(templates, len(templates)) if each.is_new]
    gone = [each for each in templates if each.has_vanished]
    gone.sort(key=lambda each: -each.counts[-2])
    shown = {each.number for each in top}
    rest = [each for each in new if each.number not in shown]
    return [*top, *rest[:_CHANGED_TOP], *gone[:_CHANGED_TOP]]


def _row(template: Template, total: int, *, has_before: bool) -> dict[str, object]:
    state = "new" if template.is_new else "vanished" if template.has_vanished else None
    return {
        "template": template.text,
        "messages": template.count,
        "messages_percent": round(100 * template.count / total, 2) if total else None,
        "before": template.counts[-2] if has_before else None,
        "state": state if has_before else None,
        # A row of Markdown is a line.
        "sample": " ".join(template.sample.split())[:_SAMPLE_CHARACTERS],
    }
