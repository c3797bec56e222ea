"""Which failures of a query lead to another start."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from millstream.pipeline import outputs
from millstream.pipeline.restarts import RESTARTS_MAX, Restarts
from tests.pipeline.agreement import newest
from tests.pipeline.conftest import MakeSpec
from tests.pipeline.test_bad_input import run_once
from tests.support.broker import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOO_LATE = "[STREAM_FAILED] ... exception: Python worker failed to connect back. SQLSTATE: XXKST"


def test_the_pauses_grow_and_the_starts_are_counted() -> None:
    restarts = Restarts()
    made = [restarts.after(TOO_LATE, batch=-1) for _ in range(RESTARTS_MAX)]
    pauses = [each.pause_seconds for each in made if each is not None]
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30, 30, 30]
    assert made[2] is not None
    assert "the machine is busy" in made[2].text
    assert "in 4 s (restart 3 of at most 10 without a finished batch)" in made[2].text
    assert restarts.after(TOO_LATE, batch=-1) is None


def test_a_finished_batch_begins_the_count_anew() -> None:
    restarts = Restarts()
    for batch in range(5 * RESTARTS_MAX):
        restart = restarts.after(TOO_LATE, batch=batch)
        assert restart is not None
        assert restart.pause_seconds == 1


@pytest.mark.parametrize("problem", ["disk full", "[MILLSTREAM_DATA_LOSS] retention", ""])
def test_what_another_start_would_meet_again_ends_the_run(problem: str) -> None:
    assert Restarts().after(problem, batch=3) is None


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_lines_of_a_task_whose_process_was_killed_count_once(
    spark: "SparkSession",
    kafka: Broker,
    make_topic: Any,
    make_spec: MakeSpec,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    spec = make_spec(
        f"""
        name = "killed-{time.time_ns()}"
        bootstrap = "{kafka.bootstrap}"
        input.topics = ["{make_topic()}"]
        [[parse.sources]]
        match = "*"
        function = "tests.pipeline.custom_parsers:parse_after_a_crash"
        """
    )
    producer = Producer({"bootstrap.servers": spec.bootstrap})
    now_ms = time.time_ns() // 1_000_000
    for number in range(20):
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now_ms // 1000 - number))
        producer.produce(spec.topics[0], at, key=str(tmp_path / "began"), timestamp=now_ms)
    assert producer.flush(30) == 0
    assert run_once(spark, spec) == [0]
    windows = [row for row in newest(spec, outputs.LIVE).values() if row["output"] == "input"]
    assert sum(row["count"] for row in windows) == 20
    assert "killed or out of memory; the query resumes" in capsys.readouterr().out
