"""Reads metrics in OTLP, OpenTelemetry's protobuf format, as clients push them (KIP-714).

The bytes come from strangers. The reader follows the fixed nesting of the messages, skips what
it does not know, and never reads past a limit on fields and points: of a larger payload it
returns the beginning. Damaged bytes raise ValueError and nothing else.

The path of messages is MetricsData > ResourceMetrics > ScopeMetrics > Metric > Gauge, Sum,
Histogram or Summary > data points.
"""

import math
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from typing import Any, Final

from millstream.lazy_dataclass import dataclass

# A Java consumer of a thousand partitions has about 5,000 points with ten fields each.
POINTS_MAX: Final = 5_000
FIELDS_MAX: Final = 60_000
_NAME_LENGTH_MAX: Final = 200
_LABELS_MAX: Final = 16
_LABEL_LENGTH_MAX: Final = 250

_BYTES: Final = 2
_VARINT_BYTES_MAX: Final = 10
_DOUBLE: Final = struct.Struct("<d")
_INT64: Final = struct.Struct("<q")

# A field's value: a number as it is on the wire, or a view of the payload.
_FieldValue = int | memoryview
EachField = Callable[[Iterable[Any]], Iterable[Any]]
_DELTA: Final = 1


@dataclass(slots=True)
class MetricPoint:
    """The newest value of one metric with one set of labels."""

    name: str
    # gauge, sum, histogram or summary.
    kind: str
    unit: str
    labels: dict[str, str]
    # Of a histogram or summary, the sum of what was measured. None if it is not finite.
    value: float | None
    # How many measurements; None for gauges and sums.
    count: int | None
    # Does it count from the client's previous push? Never set where a limit ended the reading.
    is_delta: bool


@dataclass(slots=True)
class ReadMetrics:
    points: list[MetricPoint] = field(default_factory=list)
    # Were all points read? Otherwise there were more than the limits allow.
    is_complete: bool = True


@dataclass(slots=True)
class _Shape:
    """Where the data points of one kind of metric have their fields."""

    kind: str
    attributes: int


_SHAPES: Final = {
    5: _Shape("gauge", attributes=7),
    7: _Shape("sum", attributes=7),
    9: _Shape("histogram", attributes=9),
    11: _Shape("summary", attributes=7),
}


class _LimitReached(Exception):
    """There are more fields or points than are read."""


def read_metrics(data: bytes, each: EachField = iter) -> ReadMetrics:
    """Raises ValueError if the bytes are not OTLP metrics. `each` goes through the fields, and may
    pause between them."""
    found = ReadMetrics()
    try:
        _Reader(found.points, each).read(memoryview(data))
    except _LimitReached:
        found.is_complete = False
    return found


class _Reader:
    """Appends to `points`, which is right also when a limit ends the reading."""

    def __init__(self, points: list[MetricPoint], each: EachField) -> None:
        self._points = points
        self._each = each
        self._fields_left = FIELDS_MAX

    def read(self, data: memoryview) -> None:
        for resource in self._messages(data, 1):
            for scope in self._messages(resource, 2):
                for metric in self._messages(scope, 2):
                    self._read_metric(metric)

    def _read_metric(self, data: memoryview) -> None:
        name = unit = ""
        shape: _Shape | None = None
        values = memoryview(b"")
        for number, value in self._fields(data):
            if not isinstance(value, memoryview):
                continue
            if number == 1:
                name = _text(value, _NAME_LENGTH_MAX)
            elif number == 3:
                unit = _text(value, _NAME_LENGTH_MAX)
            elif number in _SHAPES:
                shape, values = _SHAPES[number], value
        if shape is not None:
            self._read_points(name, unit, shape, values)

    def _read_points(self, name: str, unit: str, shape: _Shape, data: memoryview) -> None:
        first = len(self._points)
        is_delta = False
        for number, value in self._fields(data):
            if number == 1 and isinstance(value, memoryview):
                if len(self._points) == POINTS_MAX:
                    raise _LimitReached
                point = MetricPoint(name, shape.kind, unit, {}, None, None, False)
                self._read_point(point, shape, value)
                self._points.append(point)
            elif number == 2:
                is_delta = value == _DELTA
        if is_delta:
            # It follows the points that it is about.
            for point in self._points[first:]:
                point.is_delta = True

    def _read_point(self, point: MetricPoint, shape: _Shape, data: memoryview) -> None:
        is_number = shape.kind in ("gauge", "sum")
        for number, value in self._fields(data):
            if number == shape.attributes and isinstance(value, memoryview):
                self._read_label(point.labels, value)
            elif not isinstance(value, int):
                continue
            elif number == 4 and not is_number:
                point.count = value
            elif number == (4 if is_number else 5):
                point.value = _double(value)
            elif number == 6 and is_number:
                point.value = _signed(value)

    def _read_label(self, labels: dict[str, str], data: memoryview) -> None:
        key = text = ""
        for number, value in self._fields(data):
            if not isinstance(value, memoryview):
                continue
            if number == 1:
                key = _text(value, _LABEL_LENGTH_MAX)
            elif number == 2:
                text = self._read_any_value(value)
        if len(labels) < _LABELS_MAX:
            labels[key] = text

    def _read_any_value(self, data: memoryview) -> str:
        """Texts and plain numbers; lists and maps are left out."""
        text = ""
        for number, value in self._fields(data):
            if number == 1 and isinstance(value, memoryview):
                text = _text(value, _LABEL_LENGTH_MAX)
            elif isinstance(value, int):
                match number:
                    case 2:
                        text = "true" if value else "false"
                    case 3:
                        text = str(_signed(value))
                    case 4:
                        text = str(_double(value))
        return text

    def _messages(self, data: memoryview, wanted: int) -> Iterator[memoryview]:
        for number, value in self._fields(data):
            if number == wanted and isinstance(value, memoryview):
                yield value

    def _fields(self, data: memoryview) -> Iterable[tuple[int, _FieldValue]]:
        return self._each(self._read_fields(data))

    def _read_fields(self, data: memoryview) -> Iterator[tuple[int, _FieldValue]]:
        position, end = 0, len(data)
        while position < end:
            self._fields_left -= 1
            if self._fields_left < 0:
                raise _LimitReached
            key, position = _varint(data, position)
            size = 0
            match key & 7:
                case 0:
                    value, position = _varint(data, position)
                    yield key >> 3, value
                    continue
                case 1:
                    size = 8
                case 2:
                    size, position = _varint(data, position)
                case 5:
                    size = 4
                case other:
                    raise ValueError(f"field {key >> 3} has wire type {other}")
            if size > end - position:
                raise ValueError(f"field {key >> 3} is longer than its message")
            part = data[position : position + size]
            position += size
            yield key >> 3, part if key & 7 == _BYTES else int.from_bytes(part, "little")


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    """The number at `position`, and the position after it. Raises ValueError."""
    number = 0
    for count, byte in enumerate(data[position : position + _VARINT_BYTES_MAX]):
        number |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return number & (1 << 64) - 1, position + count + 1
    raise ValueError(f"a number at byte {position} of a message does not end")


def _text(data: memoryview, length_max: int) -> str:
    # Cut before it is decoded: a name may be a megabyte.
    return bytes(data[: 4 * length_max]).decode("utf-8", "replace")[:length_max]


def _double(bits: int) -> float | None:
    (value,) = _DOUBLE.unpack((bits & (1 << 64) - 1).to_bytes(8, "little"))
    return value if math.isfinite(value) else None


def _signed(bits: int) -> int:
    value: int = _INT64.unpack((bits & (1 << 64) - 1).to_bytes(8, "little"))[0]
    return value
