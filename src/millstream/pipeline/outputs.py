"""What a pipeline writes: its topics and tables, by name, and their settings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from millstream.pipeline.spec import Spec
from millstream.warehouse.locations import Location


@dataclass(frozen=True, slots=True)
class Output:
    """A topic of results, and what its records are."""

    suffix: str
    configs: Mapping[str, str]
    text: str

    def topic(self, spec: Spec) -> str:
        return f"{spec.name}.{self.suffix}"


_COMPACTED: Final = {"cleanup.policy": "compact"}
# Lines that are too long for anything else must fit here, whatever the input topic accepts.
_LARGE: Final = {"max.message.bytes": str(100 * 1024 * 1024)}

LIVE: Final = Output("live", _COMPACTED, "open windows: the newest value of a key counts")
FINAL: Final = Output("windows", _COMPACTED, "closed windows: exact counts, written once")
SESSIONS: Final = Output(
    "sessions", _COMPACTED, "visits that ended, with the step of the funnel reached"
)
VISITS: Final = Output("visits", _COMPACTED, "visits in progress; removed when they end")
FUNNELS: Final = Output("funnels", _COMPACTED, "how far the visits of a window have come so far")
TEMPLATES: Final = Output(
    "templates", _COMPACTED, "the most frequent templates of messages in each window"
)
ALERTS: Final = Output(
    "alerts",
    _COMPACTED,
    "bursts of errors, silent hosts, values far from the usual, new and vanished templates",
)
DEAD: Final = Output("dead", _LARGE, "lines that do not count, with the reason in their headers")

OUTPUTS: Final = (LIVE, FINAL, SESSIONS, VISITS, FUNNELS, TEMPLATES, ALERTS, DEAD)


def table_path(spec: Spec, table: str) -> Location:
    if spec.tables_location:
        return f"{spec.tables_location}/{table}"
    return spec.home / "tables" / table
