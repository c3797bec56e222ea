"""Messages of a task, counted by skeleton and window."""

import numpy as np
import pyarrow as pa
import pytest

from millstream.pipeline import skeletons
from millstream.pipeline.skeletons import SCHEMA, Skeletons


def counted(*batches: tuple[list[str | None], list[int]]) -> list[tuple[int, str | None, int]]:
    found = Skeletons()
    for messages, windows in batches:
        numbers = np.array(windows, np.int64)
        found.add(pa.array(messages, pa.string()), numbers, lambda number: number * 60)
    table = found.table()
    assert table.schema == SCHEMA
    rows = [(row["window_us"], row["skeleton"], row["count"]) for row in table.to_pylist()]
    return sorted(rows, key=lambda row: (row[0], -row[2], row[1] or ""))


def test_messages_are_counted_in_their_window() -> None:
    first = (["job 1 done", None, "bye", "job 2 done"], [1, 1, 1, 2])
    second = (["job 3 done", "bye"], [1, 1])
    assert counted(first, second) == [
        *((60, "bye", 2), (60, "job <*> done", 2), (120, "job <*> done", 1)),
    ]
    assert counted(([None, None], [0, 1])) == counted() == []


def test_a_sample_is_the_first_message() -> None:
    found = Skeletons()
    found.add(pa.array(["x 1", "x 2", "y " * 400]), np.zeros(3, np.int64), lambda number: number)
    samples = {row["skeleton"]: row["sample"] for row in found.table().to_pylist()}
    assert samples["x <*>"] == "x 1"
    assert {len(each) for each in samples.values()} == {3, skeletons.SAMPLE_CHARACTERS}


def test_more_than_fit_are_one_number(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = (["a", "b", "b", "c", "c", "c"], [0] * 6)
    monkeypatch.setattr(skeletons, "REPORTED_MAX", 2)
    assert counted(batch) == [(0, "c", 3), (0, "b", 2), (0, None, 1)]
    monkeypatch.setattr(skeletons, "KNOWN_MAX", 1)
    found = counted(batch)
    assert [skeleton is None for _, skeleton, _ in found].count(True) == 1
    assert (len(found), sum(count for _, _, count in found)) == (2, 6)
    # Not even one of the windows has a known one.
    assert counted((["a", "b"], [0, 1])) == [(0, "a", 1), (60, None, 1)]
