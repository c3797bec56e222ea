"""What a window counts, in a form in which parts of it can be merged.

Workers make them from the lines that they read, the driver merges those of all workers and
batches. Any division of the lines gives the same totals.
"""

from dataclasses import dataclass, field
from typing import Final

from millstream.pipeline.quantiles import Quantiles

# Where a window belongs to: everything, a host, a service, the pages that people look at.
INPUT: Final = "input"
HOST: Final = "host"
SERVICE: Final = "service"
SITE: Final = "site"
# The name of a window of the whole input or site.
ALL: Final = "all"

# Its start in microseconds, the output, the name.
WindowKey = tuple[int, str, str]


@dataclass(slots=True)
class Gauge:
    count: int = 0
    total: float = 0.0
    # Of at least one value.
    largest: float = 0.0

    def add(self, count: int, total: float, largest: float) -> None:
        if count:
            self.largest = max(self.largest, largest) if self.count else largest
            self.count += count
            self.total += total


@dataclass(slots=True)
class WindowTotals:
    count: int = 0
    errors: int = 0
    size_bytes: int = 0
    durations: Quantiles = field(default_factory=Quantiles)
    # None without durations.
    duration_max: float | None = None
    # By their place in the pipeline file; empty for what is no host.
    gauges: list[Gauge] = field(default_factory=list)

    def add_counts(self, count: int, errors: int, size_bytes: int) -> None:
        self.count += count
        self.errors += errors
        self.size_bytes += size_bytes

    def add_longest(self, duration: float) -> None:
        before = self.duration_max
        self.duration_max = duration if before is None else max(before, duration)
