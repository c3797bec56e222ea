"""What the benchmark of the Spark source finds out about processes."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed: no pyspark")

from bench.spark_source import children_of


def test_a_thread_that_ends_meanwhile_hides_no_children(tmp_path: Path) -> None:
    tasks = tmp_path / "7" / "task"
    for thread, children in {"7": "21 22 ", "9": "23 "}.items():
        (tasks / thread).mkdir(parents=True)
        (tasks / thread / "children").write_text(children)
    (tasks / "8").mkdir()
    assert sorted(children_of(7, tmp_path)) == [21, 22, 23]


def test_a_process_that_has_ended_has_no_children(tmp_path: Path) -> None:
    assert children_of(7, tmp_path) == []
