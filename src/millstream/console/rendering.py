"""Templates: every value is escaped, unless it is HTML that a template itself made."""

import json
from functools import cache
from typing import Final
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined

from millstream import __version__
from millstream.console import text
from millstream.console.pipeline_results import WindowChart

_FILTERS: Final = {
    "bytes": text.format_bytes,
    "count": text.format_count,
    "figure": text.format_figure,
    "rate": text.format_rate,
    "duration": text.format_duration,
    "time": text.format_time,
    "visible": text.visible,
}


@cache
def environment() -> Environment:
    found = Environment(
        loader=PackageLoader("millstream.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(_FILTERS)
    found.filters["points"] = points
    # A name as one part of a path; `/` too.
    found.filters["part"] = lambda name: quote(str(name), safe="")
    found.globals["version"] = __version__
    return found


def points(chart: WindowChart) -> str:
    """The columns that the page's script draws."""
    return json.dumps([chart.times, *chart.series.values()])


def render(template: str, **values: object) -> str:
    return environment().get_template(template).render(**values)
