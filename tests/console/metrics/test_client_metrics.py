from prometheus_client.parser import text_string_to_metric_families

from millstream.console.metrics.client_metrics import SAMPLES_MAX, PushedMetrics, expose_pushed
from millstream.wire.otlp import MetricPoint


def point(
    name: str,
    value: float | None = 1.0,
    *,
    kind: str = "gauge",
    count: int | None = None,
    is_delta: bool = False,
    **labels: str,
) -> MetricPoint:
    return MetricPoint(name, kind, "", labels, value, count, is_delta)


def samples(*points: MetricPoint) -> list[tuple[str, str, dict[str, str], float]]:
    """Type, name, labels and value of each, as a client of Prometheus reads them."""
    text = expose_pushed([PushedMetrics("c", "i", list(points))])
    return [
        # The parser adds what OpenMetrics wants of counters.
        (family.type, one.name.removesuffix("_total"), one.labels, one.value)
        for family in text_string_to_metric_families(text)
        for one in family.samples
    ]


OWN = {"client_id": "c", "client_instance_id": "i"}


def test_metrics_have_the_names_and_labels_of_the_client() -> None:
    found = samples(point("org.apache.kafka.producer.request.rate", 2.5, node_id="1"))
    labels = {**OWN, "node_id": "1"}
    assert found == [("gauge", "kafka_client_producer_request_rate", labels, 2.5)]


def test_of_histograms_there_are_sum_and_count() -> None:
    found = samples(point("x.time", 30.0, kind="histogram", count=4))
    assert [(name, value) for _, name, _, value in found] == [
        ("kafka_client_x_time_sum", 30.0),
        ("kafka_client_x_time_count", 4.0),
    ]


def test_values_that_count_from_the_last_push_or_are_unknown_are_left_out() -> None:
    assert samples(point("x", kind="sum", is_delta=True), point("y", None)) == []


def test_hostile_names_and_labels_break_nothing() -> None:
    found = samples(
        point(
            'kafka_brokers 1\n# TYPE x"{}', 1.0, **{'a"b': '"\n\\', "a.b": "lost", "__name__": "x"}
        ),
        point("", 2.0, **{"": "y", "9": "z", "client_id": "somebody else"}),
        point("größe", 3.0),
    )
    assert [value for *_, value in found] == [1.0, 2.0, 3.0]
    assert all(name.startswith("kafka_client_") for _, name, _, _ in found)
    assert found[0][2] == {**OWN, "a_b": '"\n\\', "name__": "x"}
    assert found[1][2] == OWN


def test_a_name_has_one_type() -> None:
    found = samples(point("a.b", 1.0), point("a_b", 2.0, kind="sum"), point("a.b", 3.0, x="y"))
    assert [(kind, value) for kind, *_, value in found] == [("gauge", 1.0), ("gauge", 3.0)]


def test_there_is_a_limit() -> None:
    text = expose_pushed(
        [PushedMetrics("c", "i", [point("x", n=str(n)) for n in range(SAMPLES_MAX + 5)])]
    )
    assert text.count("kafka_client_x{") == SAMPLES_MAX
