"""Which records of a topic to print: patterns for keys, values and headers."""

import re
from collections.abc import Callable, Sequence

from millstream.cli.record_text import TextRecord

Filter = Callable[[TextRecord], bool]


def compile_filter(
    *, anywhere: Sequence[str], keys: Sequence[str], values: Sequence[str], headers: Sequence[str]
) -> Filter | None:
    """A record must match all patterns; None without any. `ValueError` for a bad pattern.

    `anywhere` is searched in key, value and header values. A header pattern is NAME or
    NAME=PATTERN.
    """
    tests = [
        *(_anywhere(_compiled(each)) for each in anywhere),
        *(_in_key(_compiled(each)) for each in keys),
        *(_in_value(_compiled(each)) for each in values),
        *(_in_header(each) for each in headers),
    ]
    if not tests:
        return None
    return lambda record: all(test(record) for test in tests)


def _compiled(pattern: str) -> re.Pattern[bytes]:
    try:
        return re.compile(pattern.encode())
    except re.error as wrong:
        raise ValueError(f"{pattern!r} is not a regular expression: {wrong}") from None


def _anywhere(pattern: re.Pattern[bytes]) -> Filter:
    return lambda record: any(
        data is not None and pattern.search(data)
        for data in (record.key, record.value, *(value for _, value in record.headers))
    )


def _in_key(pattern: re.Pattern[bytes]) -> Filter:
    return lambda record: record.key is not None and bool(pattern.search(record.key))


def _in_value(pattern: re.Pattern[bytes]) -> Filter:
    return lambda record: record.value is not None and bool(pattern.search(record.value))


def _in_header(text: str) -> Filter:
    name, equals, pattern_text = text.partition("=")
    if not name:
        raise ValueError(f"a header is NAME or NAME=PATTERN, not {text!r}")
    pattern = _compiled(pattern_text)
    return lambda record: any(
        found == name and (not equals or (value is not None and bool(pattern.search(value))))
        for found, value in record.headers
    )
