"""What clients push (KIP-714), as text for Prometheus.

A metric such as `org.apache.kafka.producer.request.rate` becomes
`kafka_client_producer_request_rate`, with the labels of the client, its `client_id` and its
`client_instance_id`. Of histograms and summaries there are `_sum` and `_count`. Values that count
from the previous push are left out: Prometheus expects totals.

Names and labels come from strangers. What they send cannot take the name of another metric, break
a line, or give a name two types: Prometheus would refuse everything that the node exposes.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from millstream.console.metrics.table import labels
from millstream.wire.otlp import MetricPoint

# Of all clients together.
SAMPLES_MAX: Final = 20_000
_PREFIX: Final = "kafka_client_"
_OF_KAFKA: Final = "org.apache.kafka."
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_]")
_KINDS: Final = {"gauge": "gauge", "sum": "counter", "histogram": "counter", "summary": "counter"}


@dataclass(frozen=True, slots=True)
class PushedMetrics:
    """The newest values of one client."""

    client_id: str
    instance_id: str
    points: list[MetricPoint]


def expose_pushed(pushed: Iterable[PushedMetrics]) -> str:
    """The first `SAMPLES_MAX` samples, by metric."""
    families: dict[str, tuple[str, list[str]]] = {}
    count = 0
    for name, kind, line in _lines(pushed):
        known_kind, lines = families.setdefault(name, (kind, []))
        if known_kind != kind:
            continue
        lines.append(line)
        count += 1
        if count == SAMPLES_MAX:
            break
    return "".join(
        f"# HELP {name} As clients push it.\n# TYPE {name} {kind}\n{''.join(lines)}"
        for name, (kind, lines) in families.items()
    )


def _lines(pushed: Iterable[PushedMetrics]) -> Iterator[tuple[str, str, str]]:
    """The name of each sample, its type and its line."""
    for client in pushed:
        for point in client.points:
            if point.is_delta:
                continue
            described = _labels(client, point)
            kind = _KINDS[point.kind]
            for name, value in _samples(point):
                yield name, kind, f"{name}{{{described}}} {value:.15g}\n"


def _samples(point: MetricPoint) -> Iterator[tuple[str, float]]:
    name = _PREFIX + _NOT_IN_NAMES.sub("_", point.name.removeprefix(_OF_KAFKA))
    if point.kind in ("gauge", "sum"):
        if point.value is not None:
            yield name, point.value
        return
    if point.value is not None:
        yield f"{name}_sum", point.value
    if point.count is not None:
        yield f"{name}_count", point.count


def _labels(client: PushedMetrics, point: MetricPoint) -> str:
    found = {"client_id": client.client_id, "client_instance_id": client.instance_id}
    for name, value in point.labels.items():
        # Names with two underscores in front belong to Prometheus; two labels may become one.
        plain = _NOT_IN_NAMES.sub("_", name).lstrip("_0123456789")
        if plain:
            found.setdefault(plain, value)
    return labels(**found)
