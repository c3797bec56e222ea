"""Skeletons of messages in a task: how many messages of each there are in each window.

A skeleton is a message with its numbers replaced. Counts do not depend on how lines are divided
into tasks, as long as a task has no more different ones than it keeps: the others are one number
for each window, which is exact in any case. The driver makes templates of them (`template_log`).
"""

from collections.abc import Callable, Iterable
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millstream.lines.known_templates import skeleton_of
from millstream.lines.templates import IMPLEMENTATION

SCHEMA: Final = pa.schema(
    [
        ("window_us", pa.int64()),
        # Null for messages of all others.
        *(("skeleton", pa.string()), ("count", pa.int64()), ("sample", pa.string())),
    ]
)
SAMPLE_CHARACTERS: Final = 300
# Different ones that a task knows, and of these the most frequent that it reports of a window.
KNOWN_MAX: Final = 5_000
REPORTED_MAX: Final = 500


class Skeletons:
    def __init__(self) -> None:
        # By hash: the first message that has it.
        self._known: dict[int, str] = {}
        self._counts: dict[int, dict[int, int]] = {}
        self._others: dict[int, int] = {}

    def add(
        self,
        messages: pa.StringArray,
        window: NDArray[np.int64],
        start_us: Callable[[int], int],
    ) -> None:
        """`window`: the number of each message's window; `start_us` gives the start of one."""
        if messages.null_count == len(messages):
            return
        hashes, places, groups = IMPLEMENTATION.group_hashes(
            IMPLEMENTATION.skeleton_hashes(messages)
        )
        first, last = int(window.min()), int(window.max())
        for number in [first] if first == last else np.unique(window).tolist():
            of_window = groups if first == last else groups[window == number]
            counts = np.bincount(of_window, minlength=len(hashes))
            found = np.flatnonzero(counts)
            columns = (each[found].tolist() for each in (hashes, places, counts))
            self._count(start_us(number), messages, zip(*columns, strict=True))

    def _count(
        self, window_us: int, messages: pa.StringArray, told: Iterable[tuple[int, int, int]]
    ) -> None:
        """`told`: a hash, the row of one of its messages, and how many there are."""
        of_window = self._counts.setdefault(window_us, {})
        for each, row, count in told:
            if not each:
                continue
            if each not in self._known:
                if len(self._known) >= KNOWN_MAX:
                    self._others[window_us] = self._others.get(window_us, 0) + count
                    continue
                self._known[each] = messages[row].as_py()
            of_window[each] = of_window.get(each, 0) + count

    def table(self) -> pa.Table:
        rows: list[tuple[int, str | None, int, str | None]] = []
        texts: dict[int, tuple[str, str]] = {}
        for window_us, counts in self._counts.items():
            ordered = sorted(counts, key=lambda each: (-counts[each], each))
            for each in ordered[:REPORTED_MAX]:
                if each not in texts:
                    message = self._known[each]
                    texts[each] = (skeleton_of(message), message[:SAMPLE_CHARACTERS])
                skeleton, sample = texts[each]
                rows.append((window_us, skeleton, counts[each], sample))
            others = self._others.get(window_us, 0)
            others += sum(counts[each] for each in ordered[REPORTED_MAX:])
            if others:
                rows.append((window_us, None, others, None))
        columns = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
        arrays = [pa.array(each, of.type) for each, of in zip(columns, SCHEMA, strict=True)]
        return pa.Table.from_arrays(arrays, schema=SCHEMA)
