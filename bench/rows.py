"""One measurement as a row: rounds of both, their medians, the ratio and what was aimed at.

Medians and the whole spread are shown, never the best round. Pure.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

OURS: Final = "Millstream"
KAFKA: Final = "Kafka"


@dataclass(frozen=True, slots=True)
class Target:
    """What the ratio, ours to theirs, has to reach."""

    limit: float
    is_minimum: bool

    def is_met(self, ratio: float) -> bool:
        return ratio >= self.limit if self.is_minimum else ratio <= self.limit

    def __str__(self) -> str:
        return f"{'>=' if self.is_minimum else '<='} {self.limit:g}"


def at_least(limit: float) -> Target:
    return Target(limit, is_minimum=True)


def at_most(limit: float) -> Target:
    return Target(limit, is_minimum=False)


@dataclass(frozen=True, slots=True)
class Row:
    part: str
    name: str
    unit: str
    ours: Sequence[float]
    # Empty where there is nothing to compare with: the row then only informs.
    theirs: Sequence[float] = ()
    target: Target | None = None
    # What `theirs` is: Kafka, a limit of the machine, or ourselves under other conditions.
    against: str = KAFKA
    note: str = ""

    @property
    def ratio(self) -> float | None:
        if not self.ours or not self.theirs:
            return None
        theirs = statistics.median(self.theirs)
        return statistics.median(self.ours) / theirs if theirs else None

    @property
    def ratio_spread(self) -> tuple[float, float] | None:
        """The smallest and largest ratio of rounds that ran one after the other."""
        ratios = [a / b for a, b in zip(self.ours, self.theirs, strict=False) if b]
        return (min(ratios), max(ratios)) if ratios else None

    @property
    def verdict(self) -> str:
        ratio = self.ratio
        if self.target is None or ratio is None:
            return ""
        return "pass" if self.target.is_met(ratio) else "MISS"


def number(value: float) -> str:
    """Three or four digits that a person can read."""
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) >= 100:
        return f"{value:.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.3g}"


def with_spread(values: Sequence[float]) -> str:
    """The median, and from where to where the rounds went."""
    if not values:
        return "-"
    middle = number(statistics.median(values))
    if len(values) == 1:
        return middle
    return f"{middle} ({number(min(values))}-{number(max(values))})"


def cells(row: Row) -> list[str]:
    """A row of the table: name, ours, theirs, ratio with spread, target, verdict."""
    ratio = "-" if row.ratio is None else number(row.ratio)
    spread = row.ratio_spread
    if spread is not None and len(row.ours) > 1:
        ratio += f" ({number(spread[0])}-{number(spread[1])})"
    theirs = with_spread(row.theirs)
    if row.theirs and row.against != KAFKA:
        theirs += f" {row.against}"
    return [
        f"{row.name}, {row.unit}" if row.unit else row.name,
        with_spread(row.ours),
        theirs,
        ratio,
        "" if row.target is None else str(row.target),
        row.verdict,
    ]


HEADINGS: Final = ["measurement", OURS, KAFKA, "ratio", "target", ""]


def text_table(rows: Sequence[Row]) -> str:
    table = [HEADINGS, *(cells(row) for row in rows)]
    widths = [max(len(line[i]) for line in table) for i in range(len(HEADINGS))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in table
    )
