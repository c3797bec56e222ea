"""What an edited pipeline file means for a pipeline that has already run: `pipeline diff`.

The values in force are stored beside the checkpoints, and with the state if that is elsewhere.
`run` names and refuses a change that the stored state cannot follow, before Spark fails with its
own message.
"""

import json
from dataclasses import asdict, dataclass
from typing import Final

from millstream.pipeline.spec import FIELDS, Change, Spec, parse_spec
from millstream.pipeline.state_files import files_of
from millstream.warehouse.locations import Location

KEPT_NAME: Final = "kept-settings.json"
# Of the state of open results. Increased when it has another form.
STATE_VERSION: Final = 3
_VERSION: Final = "version of the state"

# Attributes of `Spec` by their setting, if the names differ.
_SETTING_OF: Final = {
    "state_location": "state",
    "trigger_ms": "trigger",
    "topics": "input.topics",
    "records_per_batch_max": "input.records_per_batch_max",
    "ahead_ms": "parse.ahead",
    "late_ms": "parse.late",
    "skew_ms": "parse.skew",
    "mask": "parse.mask",
    "salt": "parse.salt",
    "sources": "parse.sources",
    "window_ms": "windows.length",
    "top": "windows.top",
    "session_gap_ms": "windows.session_gap",
    "funnel": "windows.funnel",
    "gauges": "windows.gauges",
    "counters": "windows.counters",
    "silent_after_ms": "windows.silent_after",
    "error_share": "windows.error_share",
    "error_count_min": "windows.error_count_min",
    "watch_anomalies": "anomalies.watch",
    "anomaly_sensitivity": "anomalies.sensitivity",
    "watch_templates": "templates.watch",
    "top_templates": "templates.top",
    "warehouse": "warehouse.format",
    "tables_location": "warehouse.location",
    "compact_every": "warehouse.compact_every",
    "keep_days": "warehouse.keep_days",
    "daily_report": "reports.daily",
    "weekly_report": "reports.weekly",
    "monthly_report": "reports.monthly",
}
# Stored in milliseconds, written by people as '90s' or '10 minutes'.
_DURATIONS: Final = {
    setting for attribute, setting in _SETTING_OF.items() if attribute.endswith("_ms")
}


@dataclass(frozen=True, slots=True)
class Difference:
    setting: str
    before: object
    now: object
    change: Change


def keep(spec: Spec) -> None:
    """Store the values that this pipeline runs with."""
    text = json.dumps(_plain(spec), indent=1, sort_keys=True) + "\n"
    for location in _kept_in(spec):
        files_of(location).write(KEPT_NAME, text.encode())


def _kept_in(spec: Spec) -> list[Location]:
    """A machine that never ran the pipeline finds them with its state."""
    return [spec.state_location, spec.home] if spec.state_location else [spec.home]


def _kept(spec: Spec) -> dict[str, object] | None:
    for location in _kept_in(spec):
        text = files_of(location).read(KEPT_NAME)
        if text is not None:
            found: dict[str, object] = json.loads(text)
            return found
    return None


def differences(spec: Spec) -> list[Difference]:
    """Between the file and the last run's values; empty if the pipeline never ran."""
    kept = _kept(spec)
    if kept is None:
        return []
    # A setting that did not exist then has its default now; the first version had no number.
    defaults = {**_plain(parse_spec("", folder=spec.home)), _VERSION: 1}
    before = {**defaults, **kept}
    now = _plain(spec)
    return [
        Difference(
            setting,
            _shown(setting, before.get(setting)),
            _shown(setting, value),
            _change(setting),
        )
        for setting, value in now.items()
        if before.get(setting) != value
    ]


def _shown(setting: str, value: object) -> object:
    if setting in _DURATIONS and isinstance(value, int):
        return f"{value / 1000:g} s"
    return value


def _plain(spec: Spec) -> dict[str, object]:
    values = {_SETTING_OF.get(name, name): value for name, value in asdict(spec).items()}
    # Its location is not a part of it: a home may be moved as a whole. The salt is a secret.
    del values["home"]
    values["parse.salt"] = bool(values["parse.salt"])
    values[_VERSION] = STATE_VERSION
    found: dict[str, object] = json.loads(json.dumps(values))
    return found


def _change(setting: str) -> Change:
    if setting == _VERSION:
        return Change.STATE
    section, _, name = setting.rpartition(".")
    for field in FIELDS.get(section, ()):
        if field.name == name:
            return field.change
    return Change.RESULTS
