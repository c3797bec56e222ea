from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from millstream.console.metrics.appended import AppendedBytes


@dataclass(eq=False)
class FakePartition:
    all: list[Any] = field(default_factory=list)

    @property
    def topic_partition(self) -> Any:
        return SimpleNamespace(topic="t")

    @property
    def log(self) -> Any:
        return SimpleNamespace(segments=SimpleNamespace(all=self.all, active=self.all[-1]))


def segment(base_offset: int, size_bytes: int) -> Any:
    return SimpleNamespace(base_offset=base_offset, size_bytes=size_bytes)


def test_growth_is_counted_over_rolled_segments_and_never_falls() -> None:
    partition, appended = FakePartition([segment(0, 100)]), AppendedBytes()

    def look() -> int:
        appended.look([partition])  # type: ignore[list-item]
        return appended.by_topic.get("t", 0)

    # What was there before is not new.
    assert look() == 0
    partition.all = [segment(0, 150)]
    assert look() == 50
    partition.all = [segment(0, 200), segment(10, 40), segment(20, 5)]
    assert look() == 145
    # Retention removes the oldest.
    partition.all = [segment(20, 5)]
    assert look() == 145
    # The log is cut.
    partition.all = [segment(20, 1)]
    assert look() == 145


def test_a_log_that_appears_later_was_empty() -> None:
    appended = AppendedBytes()
    appended.look([])
    appended.look([FakePartition([segment(0, 70), segment(5, 30)])])  # type: ignore[list-item]
    assert appended.by_topic == {"t": 100}
