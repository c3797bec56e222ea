"""The table of events as reports ask it: counted while it is read, never whole in memory."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.acero as acero
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.compute import Expression

from millstream.pipeline.partials import ERROR_LEVELS, ERROR_STATUS, VIEW_FORMATS
from millstream.pipeline.reporting.periods import Period

# Latencies are counted by their value to this many digits, so that a month of them is a short
# list; a percentile is at most half of the last digit off.
LATENCY_DIGITS: Final = 4
_NUMBER: Final = r"^-?[0-9]+(\.[0-9]+)?$"

FALSE: Final = pc.scalar(False)
NO_TEXT: Final = pc.scalar(pa.scalar(None, pa.string()))
IS_VIEW: Final = pc.coalesce(
    pc.field("format").isin(list(VIEW_FORMATS)) & pc.field("path").is_valid(), FALSE
)
IS_ERROR: Final = pc.coalesce(pc.field("status") >= ERROR_STATUS, FALSE) | pc.coalesce(
    pc.field("level").isin(list(ERROR_LEVELS)), FALSE
)
# Of page views only: a request to a service need not be a visit.
VISITOR: Final = pc.if_else(IS_VIEW, pc.field("visitor"), NO_TEXT)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A column of a result: what Arrow does with a value of each row of a group."""

    name: str
    function: str
    value: Expression | None = None


def count(name: str) -> Aggregate:
    return Aggregate(name, "hash_count_all")


def count_where(name: str, condition: Expression) -> Aggregate:
    return Aggregate(name, "hash_sum", condition.cast(pa.int64()))


def distinct(name: str, value: Expression) -> Aggregate:
    return Aggregate(name, "hash_count_distinct", value)


class Events:
    """Events that count: those that are `ahead` or `late` are in no report."""

    def __init__(self, dataset: ds.Dataset) -> None:
        self._dataset = dataset

    def grouped(
        self,
        period: Period,
        keys: dict[str, Expression],
        aggregates: Sequence[Aggregate],
        *,
        where: Expression | None = None,
    ) -> list[dict[str, Any]]:
        """A row for each group of a period's events, in no order."""
        values = {each.name: each.value for each in aggregates if each.value is not None}
        names = [*keys, *(f"value_{name}" for name in values)]
        plan = acero.Declaration.from_sequence(
            [
                *self._selected(period, where),
                acero.Declaration(
                    "project", acero.ProjectNodeOptions([*keys.values(), *values.values()], names)
                ),
                acero.Declaration(
                    "aggregate",
                    acero.AggregateNodeOptions(
                        [
                            (
                                [] if each.value is None else f"value_{each.name}",
                                each.function,
                                None,
                                each.name,
                            )
                            for each in aggregates
                        ],
                        keys=list(keys),
                    ),
                ),
            ]
        )
        found: list[dict[str, Any]] = plan.to_table().to_pylist()
        return found

    def rows(self, period: Period, columns: list[str], *, where: Expression) -> pa.Table:
        plan = acero.Declaration.from_sequence(
            [
                *self._selected(period, where),
                acero.Declaration(
                    "project", acero.ProjectNodeOptions([pc.field(name) for name in columns])
                ),
            ]
        )
        return plan.to_table()

    def _selected(self, period: Period, where: Expression | None) -> list[acero.Declaration]:
        days = [day.isoformat() for day in period.days]
        chosen = pc.field("date").isin(days) & pc.field("problem").is_null()
        if where is not None:
            chosen &= where
        return [
            # The first lets whole files out, the second rows.
            acero.Declaration("scan", acero.ScanNodeOptions(self._dataset, filter=chosen)),
            acero.Declaration("filter", acero.FilterNodeOptions(chosen)),
        ]

    def visitors(self, period: Period) -> set[str]:
        rows = self.grouped(period, {"visitor": pc.field("visitor")}, [count("n")], where=IS_VIEW)
        return {row["visitor"] for row in rows if row["visitor"] is not None}

    def latencies(
        self, period: Period, keys: dict[str, Expression]
    ) -> dict[tuple[Any, ...], dict[float, int]]:
        """For each group, how often each latency was seen, by its first digits."""
        rows = self.grouped(
            period,
            {**keys, "duration_ms": rounded_latency()},
            [count("n")],
            where=pc.field("duration_ms").is_valid() & pc.field("service").is_valid(),
        )
        found: dict[tuple[Any, ...], dict[float, int]] = {}
        for row in rows:
            group = tuple(row[key] for key in keys)
            found.setdefault(group, {})[row["duration_ms"]] = row["n"]
        return found


def rounded_latency() -> Expression:
    value = pc.field("duration_ms")
    positive = pc.if_else(value > pc.scalar(0.0), value, pc.scalar(1.0))
    digits = pc.subtract(pc.floor(pc.log10(positive)), pc.scalar(float(LATENCY_DIGITS - 1)))
    unit = pc.power(pc.scalar(10.0), digits)
    return pc.multiply(pc.round(pc.divide(value, unit)), unit)


def field_number(name: str) -> Expression:
    """A number among the fields of a line; null where there is none, or no number."""
    text = pc.map_lookup(pc.field("fields"), pa.scalar(name), "first")
    is_number = pc.match_substring_regex(text, pattern=_NUMBER)
    return pc.if_else(is_number, text, NO_TEXT).cast(pa.float64())


def percentiles(counts: dict[float, int], shares: Iterable[float]) -> list[float | None]:
    """Values at ranks, the lower one between two."""
    total = sum(counts.values())
    if not total:
        return [None for _ in shares]
    ordered = sorted(counts.items())
    return [_at_rank(ordered, int((total - 1) * share)) for share in shares]


def _at_rank(ordered: list[tuple[float, int]], rank: int) -> float:
    passed = 0
    for value, how_often in ordered:
        passed += how_often
        if passed > rank:
            # Units of a thousandth are not exact in binary.
            return float(f"{value:.{LATENCY_DIGITS}g}")
    raise AssertionError("a rank is less than the number of values")
