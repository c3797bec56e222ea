"""Durations as ISO 8601 writes them: P1DT2H, PT30M, PT1.5S. Kafka takes days and smaller units."""

import re

_FORM = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE)
_MS = (86_400_000, 3_600_000, 60_000, 1_000)


def iso_duration_ms(text: str) -> int:
    """Raises ValueError."""
    found = _FORM.fullmatch(text)
    if found is None or not any(found.groups()):
        raise ValueError(f"{text!r} is not a duration such as P1D, PT2H or PT30M")
    parts = zip(found.groups(), _MS, strict=True)
    return round(sum(float(number) * unit for number, unit in parts if number))
