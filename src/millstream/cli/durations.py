"""Durations on the command line: `500ms`, `90s`, `30m`, `12h`, `7d`, `2w`."""

import re
from typing import TYPE_CHECKING, Any, Final

import click

_UNIT_SECONDS: Final = {
    "ms": 0.001,
    "s": 1,
    "m": 60,
    "h": 3600,
    "d": 86_400,
    "w": 7 * 86_400,
}


if TYPE_CHECKING:
    _DurationType = click.ParamType[float]
else:
    # Generic only in newer versions of click.
    _DurationType = click.ParamType


class Duration(_DurationType):
    """The value is in seconds."""

    name = "DURATION"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, int | float):
            return value
        found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|[smhdw])", value)
        if found is None:
            self.fail(f"{value!r} is not a duration; examples: 7d, 12h, 30m, 90s", param, ctx)
        return float(found[1]) * _UNIT_SECONDS[found[2]]


DURATION: Final = Duration()
