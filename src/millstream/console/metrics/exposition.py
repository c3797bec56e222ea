"""The text that Prometheus reads, version 0.0.4."""

from collections.abc import Iterator
from typing import Final

from millstream.console.metrics.table import METRICS, Snapshot

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def expose(snapshot: Snapshot) -> str:
    return "".join(_lines(snapshot))


def _lines(snapshot: Snapshot) -> Iterator[str]:
    for metric in METRICS:
        samples = list(metric.read(snapshot))
        if samples:
            yield f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.kind}\n"
            for sample in samples:
                labels = f"{{{sample.labels}}}" if sample.labels else ""
                yield f"{metric.name}{sample.suffix}{labels} {sample.value:.15g}\n"
