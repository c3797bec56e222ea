import math
import random
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as some

from millstream.wire import otlp
from millstream.wire.otlp import FIELDS_MAX, POINTS_MAX, MetricPoint, read_metrics
from tests.support.otlp import (
    double,
    fixed64,
    gauge,
    label,
    message,
    metric,
    metrics_data,
    varint,
)


def test_a_gauge_has_its_value_unit_and_labels():
    found = read_metrics(metrics_data(gauge("queue", 1.5, topic="t", partition="0")))
    assert found.is_complete
    labels = {"topic": "t", "partition": "0"}
    assert found.points == [MetricPoint("queue", "gauge", "ms", labels, 1.5, None, False)]


def test_a_sum_may_be_a_delta_and_a_whole_number():
    points = message(1, fixed64(3, 7) + fixed64(6, -5))
    data = points + varint(2 << 3) + varint(1)
    [point] = read_metrics(metrics_data(metric("sent", 7, data))).points
    assert (point.kind, point.value, point.is_delta) == ("sum", -5, True)
    cumulative = message(1, double(4, 2.0)) + varint(2 << 3) + varint(2)
    [point] = read_metrics(metrics_data(metric("sent", 7, cumulative))).points
    assert (point.value, point.is_delta) == (2.0, False)


def test_many_signs_of_a_delta_look_at_each_point_once(monkeypatch):
    signs = []

    class CountedPoint(MetricPoint):
        def __setattr__(self, name, value):
            if name == "is_delta" and value:
                signs.append(self)
            super().__setattr__(name, value)

    monkeypatch.setattr(otlp, "MetricPoint", CountedPoint)
    data = message(1, b"") * 10 + (varint(2 << 3) + varint(1)) * 100
    found = read_metrics(metrics_data(metric("sent", 7, data)))
    assert [point.is_delta for point in found.points] == [True] * 10
    assert len(signs) == 10


@pytest.mark.parametrize(
    ("number", "kind", "attributes"), [(9, "histogram", 9), (11, "summary", 7)]
)
def test_histograms_and_summaries_have_count_and_sum(number, kind, attributes):
    point = fixed64(4, 3) + double(5, 9.5) + label(attributes, "a", "b")
    [found] = read_metrics(metrics_data(metric("took", number, message(1, point)))).points
    assert (found.kind, found.count, found.value, found.labels) == (kind, 3, 9.5, {"a": "b"})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_is_none(value):
    [point] = read_metrics(metrics_data(gauge("rate", value))).points
    assert point.value is None


def test_unknown_fields_and_unknown_kinds_of_metrics_are_skipped():
    unknown = metric("exponential", 10, message(1, b"\xff\xff"))
    known = gauge("known", 1.0) + message(99, b"x") + varint(98 << 3 | 5) + b"1234"
    found = read_metrics(varint(7 << 3) + b"\x01" + metrics_data(unknown, known))
    assert [point.name for point in found.points] == ["known"]


def test_labels_of_other_types_are_texts():
    values = [
        varint(2 << 3) + b"\x01",
        varint(3 << 3) + varint(12),
        double(4, 0.5),
        message(5, b""),
    ]
    labels = b"".join(
        message(7, message(1, str(number).encode()) + message(2, value))
        for number, value in enumerate(values)
    )
    [point] = read_metrics(metrics_data(metric("m", 5, message(1, labels)))).points
    assert point.labels == {"0": "true", "1": "12", "2": "0.5", "3": ""}


def test_texts_are_bounded_and_need_not_be_text():
    found = read_metrics(metrics_data(gauge("n" * 100_000, 1.0, **{"l" * 9_000: "v" * 9_000})))
    [point] = found.points
    assert len(point.name) == 200
    assert all(len(text) == 250 for pair in point.labels.items() for text in pair)
    broken = message(1, b"\xff\xfe") + message(5, message(1, double(4, 1.0)))
    assert read_metrics(metrics_data(broken)).points[0].name == "��"
    many = read_metrics(metrics_data(gauge("m", 1.0, **{f"l{n}": "" for n in range(100)})))
    assert len(many.points[0].labels) == 16


def test_of_too_many_points_the_first_are_read():
    points = message(1, double(4, 1.0)) * (POINTS_MAX + 1)
    found = read_metrics(metrics_data(metric("m", 5, points)))
    assert (len(found.points), found.is_complete) == (POINTS_MAX, False)


def test_a_metric_with_more_points_than_fields_are_read_has_its_first_points():
    found = read_metrics(metrics_data(metric("m", 5, message(1, double(4, 1.0)) * FIELDS_MAX)))
    assert (len(found.points), found.is_complete) == (POINTS_MAX, False)


def test_of_too_many_fields_the_first_are_read():
    found = read_metrics(metrics_data(gauge("m", 1.0)) + b"\x10\x00" * FIELDS_MAX)
    assert ([point.name for point in found.points], found.is_complete) == (["m"], False)


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a",
        b"\x0a\x05abc",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\xff" * 11,
        b"\x09\x00",
        b"\x0d\x00",
        b"\x0b\x0c",
        b"\x0e",
        metrics_data(message(5, message(1, b"\x21\x00"))),
    ],
)
def test_damaged_bytes_are_a_value_error(data):
    with pytest.raises(ValueError, match=r"field|number"):
        read_metrics(data)


@given(data=some.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data):
    try:
        found = read_metrics(data)
    except ValueError:
        return
    assert all(isinstance(point.name, str) for point in found.points)


def test_any_damage_to_metrics_is_read_or_refused():
    chance = random.Random(1)
    good = metrics_data(*(gauge(f"m{number}", number, topic="t") for number in range(20)))
    for _ in range(2_000):
        data = bytearray(good)
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            found = read_metrics(bytes(data[: chance.randint(0, len(data))]))
        except ValueError:
            continue
        assert len(found.points) <= 20


def test_fields_are_gone_through_as_the_caller_says() -> None:
    passed: list[object] = []

    def each(fields: Iterable[object]) -> Iterator[object]:
        for one in fields:
            passed.append(one)
            yield one

    data = metrics_data(gauge("queue", 1.5, topic="t", partition="0"))
    assert read_metrics(data, each) == read_metrics(data)
    assert passed
