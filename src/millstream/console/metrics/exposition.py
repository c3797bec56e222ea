"""The text that Prometheus reads, version 0.0.4."""

from collections.abc import Iterator
from typing import Final

from millstream.console.metrics.table import METRICS, Sample, Snapshot

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def expose(snapshot: Snapshot) -> str:
    return "".join(_lines(snapshot))


def _lines(snapshot: Snapshot) -> Iterator[str]:
    for metric in METRICS:
        samples = list(metric.read(snapshot))
        if samples:
            yield f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.kind}\n"
            for sample in samples:
                yield f"{metric.name}{sample.suffix}{_labels(sample)} {sample.value:.15g}\n"


def _labels(sample: Sample) -> str:
    if not sample.labels:
        return ""
    pairs = (f'{name}="{value.translate(_ESCAPES)}"' for name, value in sample.labels.items())
    return "{" + ",".join(pairs) + "}"
