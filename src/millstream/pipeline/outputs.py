"""What a pipeline writes: its topics and tables, by name, and how they are kept."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from millstream.pipeline.spec import Spec


@dataclass(frozen=True, slots=True)
class Output:
    """A topic of results, and what its records are."""

    suffix: str
    is_compacted: bool
    text: str

    def topic(self, spec: Spec) -> str:
        return f"{spec.name}.{self.suffix}"


LIVE: Final = Output("live", True, "windows while they are open: the newest value of a key counts")
FINAL: Final = Output("windows", True, "windows that are closed: exact counts, written once")
SESSIONS: Final = Output("sessions", True, "visits that ended, with the step of the funnel reached")
ALERTS: Final = Output("alerts", True, "bursts of errors, and hosts that fell silent or came back")
DEAD: Final = Output("dead", False, "lines that do not count, with the reason in their headers")

OUTPUTS: Final = (LIVE, FINAL, SESSIONS, ALERTS, DEAD)

RAW: Final = "raw"
EVENTS: Final = "events"


def table_path(spec: Spec, table: str) -> Path:
    return spec.home / "tables" / table
