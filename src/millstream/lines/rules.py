"""What decides how lines are read: plain values that travel to workers as JSON."""

import json
import re
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class SourceRule:
    """How lines of sources that match are parsed: by a format, a function, or patterns."""

    # A pattern with * and ?.
    match: str
    format: str = "auto"
    # `module:name`, or nothing.
    function: str = ""
    # Those of `line_patterns`; the first that a line fits decides.
    patterns: tuple[str, ...] = ()

    @property
    def decides(self) -> bool:
        return self.format != "auto" or bool(self.function) or bool(self.patterns)

    def matches(self, source: str) -> bool:
        parts = ({"*": ".*", "?": "."}.get(each, re.escape(each)) for each in self.match)
        return re.fullmatch("".join(parts), source, re.DOTALL) is not None


@dataclass(frozen=True, slots=True)
class LineRules:
    # In order: the first that matches decides. Where none does, each line tells its format.
    sources: tuple[SourceRule, ...]
    # Of times without a zone.
    timezone: str
    # Of "address", "user", "query".
    mask: tuple[str, ...]
    salt: str
    # Fields whose numbers are wanted, in this order: a pipeline's gauges, then its counters.
    gauges: tuple[str, ...]
    ahead_ms: int
    late_ms: int

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "LineRules":
        said = json.loads(text)
        return cls(
            sources=tuple(_source_rule(each) for each in said["sources"]),
            timezone=said["timezone"],
            mask=tuple(said["mask"]),
            salt=said["salt"],
            gauges=tuple(said["gauges"]),
            ahead_ms=said["ahead_ms"],
            late_ms=said["late_ms"],
        )


def _source_rule(said: dict[str, Any]) -> SourceRule:
    return SourceRule(**{**said, "patterns": tuple(said["patterns"])})
