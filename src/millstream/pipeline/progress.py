"""How far a run of a pipeline has come, as plain values that its query reports."""

import threading
from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run has come."""

    # Lines since its start, by their problem; `good` has none.
    lines: Counter[str] = field(default_factory=Counter)
    # Of the last batch: its number, its lines, and the state after it.
    batch: int = -1
    batch_lines: int = 0
    state_rows: int = 0
    dropped: int = 0
    watermark_us: int | None = None


class Watched:
    """The progress of a run: written by the thread of its query, read by the status display."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._progress = Progress()

    def get(self) -> Progress:
        with self._lock:
            return self._progress

    def set(self, progress: Progress) -> None:
        with self._lock:
            self._progress = progress
