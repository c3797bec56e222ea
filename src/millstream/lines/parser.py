"""Records of a topic into events: one row for each record, with what could be read from it.

`problem` is null for an event that counts; otherwise it says why it does not: `unparsable`,
or an event time that is `ahead` of or `late` for its record's own timestamp. That is decided
from the row alone, so that every query, and every repetition of a batch, decides the same.

Columns are made only when they are asked for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from millstream.lines import zones
from millstream.lines.arrays import is_valid, of_numpy, of_texts, to_numpy
from millstream.lines.custom import Parser, load_parser, parse_rows
from millstream.lines.layouts import FAULTS, KIND_NAMES, KINDS
from millstream.lines.line_patterns import compile_pattern
from millstream.lines.masking import hashes_of, is_utf8, masked_addresses, masked_values
from millstream.lines.rules import LineRules, SourceRule
from millstream.lines.scanning import IMPLEMENTATION, Implementation
from millstream.lines.schema import EVENT_SCHEMA, FIELDS, GAUGES, SCANNED, TIME

__all__ = ["EVENT_SCHEMA", "LineParser", "LineRules", "SourceRule"]

_CUSTOM: Final = KINDS.index("custom")
_PATTERN: Final = KINDS.index("pattern")
_UNKNOWN: Final = KINDS.index("unknown")
_TOO_LONG: Final = 2
_NOT_UTF8: Final = 3
_NAMES: Final = of_texts(KIND_NAMES)
# Reasons by number: those of values that are no lines, then those of each kind without a time.
_NO_FORMAT: Final = len(FAULTS)
_NO_TIME: Final = _NO_FORMAT + 1
_DETAILS: Final = of_texts(
    [
        *(*FAULTS, "no known format"),
        *(f"no time as {name}" for name in KIND_NAMES[:_PATTERN]),
        "fits no pattern of its source",
    ]
)
_PROBLEMS: Final = of_texts([None, "unparsable", "ahead", "late"])
# Years 1 to 9999, which everybody who reads a table can name.
_FIRST_US: Final = -62_135_596_800_000_000
_LAST_US: Final = 253_402_300_799_999_999
_SOURCES_KEPT_MAX: Final = 10_000
# Far from any time, so that adding a delay stays within 64 bits.
_FAR_US: Final = 1 << 62


@dataclass(slots=True)
class _Rows:
    """A batch on its way from records to events."""

    records: pa.RecordBatch
    values: pa.BinaryArray
    sources: pa.StringArray
    scanned: dict[str, pa.Array]
    event_time: pa.TimestampArray
    # Places in `_DETAILS` and `_PROBLEMS`.
    details: NDArray[np.int8]
    problems: NDArray[np.int8]


class LineParser:
    """Parses for one set of rules; its functions are loaded when it is made."""

    def __init__(
        self,
        rules: LineRules,
        columns: Sequence[str],
        *,
        implementation: Implementation = IMPLEMENTATION,
    ) -> None:
        self.schema = pa.schema([EVENT_SCHEMA.field(name) for name in columns])
        self._rules = rules
        self._given = [rule for rule in rules.sources if rule.decides]
        self._parsers: list[Parser] = [
            load_parser(rule.function) for rule in self._given if rule.function
        ]
        # The rule of each source seen, by its place; that behind the last is none.
        self._rule_of: dict[str, int] = {}
        self._hashes = hashes_of(rules.salt)
        patterns = [rule.patterns for rule in self._given if rule.patterns]
        self._scanner = implementation.Scanner(
            _scanned_columns(rules, columns),
            rules.gauges,
            [[compile_pattern(each) for each in of_rule] for of_rule in patterns],
        )

    def parse(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """One row for each record, in their order."""
        rows = self._read(records)
        columns = [self._column(name, rows) for name in self.schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _read(self, records: pa.RecordBatch) -> _Rows:
        values = _as(records.column("value"), pa.binary())
        sources = _sources(records)
        record_time = _as(records.column("timestamp"), TIME)
        record_us = to_numpy(record_time.cast(pa.int64()))
        is_recorded = is_valid(record_time)
        rules = self._rules_of(sources)
        scanned = self._scanner.scan(
            values,
            sources,
            of_numpy(zones.local_of(record_us, self._rules.timezone), is_recorded),
            self._given_kinds()[rules],
            self._custom_fields(values, sources, record_time, rules),
        )
        event_us, is_timed = self._event_times(scanned)
        details = _details(scanned, is_timed)
        return _Rows(
            records=records,
            values=values,
            sources=sources,
            scanned=scanned,
            event_time=of_numpy(event_us, is_timed).cast(TIME),
            details=details,
            problems=self._problems(details, event_us, record_us, is_recorded),
        )

    # -- rules of sources ------------------------------------------------------------------

    def _rules_of(self, sources: pa.StringArray) -> NDArray[np.int64]:
        if not self._given or not len(sources):
            return np.full(len(sources), len(self._given), np.int64)
        coded = sources.dictionary_encode()
        if len(self._rule_of) > _SOURCES_KEPT_MAX:
            self._rule_of.clear()
        found = [self._place_of(source) for source in coded.dictionary.to_pylist()]
        places: NDArray[np.int64] = np.array(found, np.int64)[to_numpy(coded.indices)]
        return places

    def _place_of(self, source: str) -> int:
        if source not in self._rule_of:
            matching = (at for at, rule in enumerate(self._given) if rule.matches(source))
            self._rule_of[source] = next(matching, len(self._given))
        return self._rule_of[source]

    def _given_kinds(self) -> NDArray[np.int8]:
        # Above the kinds, the scanner counts rules with patterns.
        numbers = iter(range(len(KINDS), len(KINDS) + len(self._given)))
        kinds = [
            _CUSTOM
            if rule.function
            else next(numbers)
            if rule.patterns
            else KINDS.index(rule.format)
            for rule in self._given
        ]
        return np.array([*kinds, -1], np.int8)

    def _custom_fields(
        self,
        values: pa.BinaryArray,
        sources: pa.StringArray,
        record_time: pa.TimestampArray,
        rules: NDArray[np.int64],
    ) -> pa.MapArray | None:
        if not self._parsers:
            return None
        numbers = iter(range(len(self._parsers)))
        of_rules = [next(numbers) if rule.function else -1 for rule in self._given]
        chosen = np.array([*of_rules, -1], np.int64)[rules]
        is_line = self._scanner.faults(values) == 0
        is_custom = of_numpy((chosen >= 0) & is_line)
        texts = pc.if_else(is_custom, values, pa.nulls(len(values), pa.binary())).cast(pa.string())
        texts = pc.utf8_ltrim(pc.utf8_rtrim(texts, " \r\n"), "\ufeff")
        lines = pa.RecordBatch.from_arrays(
            [sources, texts, record_time], ["source", "line", "record_time"]
        )
        return parse_rows(lines, self._parsers, chosen)

    # -- times -----------------------------------------------------------------------------

    def _event_times(
        self, scanned: dict[str, pa.Array]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        time = scanned["time"]
        event_us = to_numpy(time)
        is_timed = is_valid(time)
        is_local = to_numpy(scanned["is_local"].cast(pa.uint8())) != 0
        if is_local.any() and not zones.is_utc(self._rules.timezone):
            event_us = event_us.copy()
            event_us[is_local] = zones.utc_of(event_us[is_local], self._rules.timezone)
        return event_us, is_timed & (event_us >= _FIRST_US) & (event_us <= _LAST_US)

    def _problems(
        self,
        details: NDArray[np.int8],
        event_us: NDArray[np.int64],
        record_us: NDArray[np.int64],
        is_recorded: NDArray[np.bool_],
    ) -> NDArray[np.int8]:
        record_us = np.clip(record_us, -_FAR_US, _FAR_US)
        is_event = (details == 0) & is_recorded
        ahead = is_event & (event_us > record_us + self._rules.ahead_ms * 1000)
        late = is_event & (event_us < record_us - self._rules.late_ms * 1000)
        return np.select([details != 0, ahead, late], [1, 2, 3], 0).astype(np.int8)

    # -- columns ---------------------------------------------------------------------------

    def _column(self, name: str, rows: _Rows) -> pa.Array:
        mask = self._rules.mask
        match name:
            case "topic" | "partition" | "offset":
                return _as(rows.records.column(name), EVENT_SCHEMA.field(name).type)
            case "record_time":
                return _as(rows.records.column("timestamp"), TIME)
            case "source":
                return rows.sources
            case "value":
                return self._stored_values(rows)
            case "format":
                return _NAMES.take(rows.scanned["kind"])
            case "event_time":
                return rows.event_time
            case "detail":
                return _DETAILS.take(of_numpy(rows.details))
            case "problem":
                return _PROBLEMS.take(of_numpy(rows.problems))
            case "visitor":
                return self._hashes.of(rows.scanned["visitor"])
            case "user" if "user" in mask:
                return self._hashes.of(rows.scanned["user"])
            case "address" if "address" in mask:
                return masked_addresses(rows.scanned["address"])
            case "query" if "query" in mask:
                return pa.nulls(len(rows.values), pa.string())
            case "fields" | "gauges" if name not in rows.scanned:
                return pa.nulls(len(rows.values), FIELDS if name == "fields" else GAUGES)
            case _:
                return rows.scanned[name]

    def _stored_values(self, rows: _Rows) -> pa.BinaryArray:
        mask = self._rules.mask
        if not mask:
            return rows.values
        faults = to_numpy(rows.scanned["fault"])
        is_kept = (rows.problems != 0) & is_valid(rows.values) & (faults != _NOT_UTF8)
        # Long ones were not looked through.
        for row in np.flatnonzero(is_kept & (faults == _TOO_LONG)):
            is_kept[row] = is_utf8(rows.values[int(row)].as_py())
        users = rows.scanned.get("user")
        return masked_values(rows.values, users, is_kept, mask=mask, hashes=self._hashes)


def _scanned_columns(rules: LineRules, columns: Sequence[str]) -> set[str]:
    wanted = set(columns) & set(SCANNED)
    if "value" in columns and "user" in rules.mask:
        wanted.add("user")
    # They hold everything, and so everything that is to be masked.
    if rules.mask:
        wanted -= {"fields", "gauges"}
    if not rules.gauges:
        wanted.discard("gauges")
    return wanted


def _details(scanned: dict[str, pa.Array], is_timed: NDArray[np.bool_]) -> NDArray[np.int8]:
    kinds, faults = to_numpy(scanned["kind"]), to_numpy(scanned["fault"])
    missing = np.where(kinds == _UNKNOWN, _NO_FORMAT, _NO_TIME + kinds)
    return np.where(faults != 0, faults, np.where(is_timed, 0, missing)).astype(np.int8)


def _sources(records: pa.RecordBatch) -> pa.StringArray:
    """The record's key, or the topic where it has none."""
    keys = _as(records.column("key"), pa.binary())
    try:
        texts = keys.cast(pa.string())
    except pa.ArrowInvalid:
        decoded = [
            None if key is None else key.decode(errors="replace") for key in keys.to_pylist()
        ]
        texts = of_texts(decoded)
    if texts.null_count == 0:
        return texts
    texts = pc.coalesce(texts, _as(records.column("topic"), pa.string()))
    return texts if texts.null_count == 0 else of_texts([each or "" for each in texts.to_pylist()])


def _as(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind else column.cast(kind)
