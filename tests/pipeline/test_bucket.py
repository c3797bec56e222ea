"""A pipeline whose tables, or tables and state, are in a bucket: its home is the driver's alone.

Covers pipeline/carried_checkpoint.py, pipeline/outputs.py, warehouse/locations.py,
warehouse/reading.py.
"""

import os
import shutil
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from millstream.ingest.traffic import Site
from millstream.pipeline import outputs
from millstream.pipeline.spec import load_spec
from millstream.pipeline.state_files import files_of
from tests.pipeline.agreement import (
    SPEC,
    closing_line,
    disagreements,
    newest,
    read_topic,
    send,
)
from tests.pipeline.kills import Pipeline
from tests.support.broker import Broker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_real_time_and_a_rebuild_with_tables_in_a_bucket(
    kafka: Broker, make_topic: Any, tmp_path: Path, bucket: str
) -> None:
    topic = make_topic(partitions=2)
    file = tmp_path / "pipeline.toml"
    text = SPEC.format(
        name=f"bucket-{time.time_ns()}", bootstrap=kafka.bootstrap, topic=topic, settings=""
    )
    file.write_text(f'{text}[warehouse]\nlocation = "{bucket}"\n')
    spec = load_spec(file)
    start_ms = time.time_ns() // 1_000_000 - 3 * 3600 * 1000
    lines = list(islice(Site(seed=7, start_ms=start_ms, lines_per_second=20).lines(), 2500))
    lines.append(closing_line(lines))
    send(kafka.bootstrap, topic, lines)
    run(tmp_path, "pipeline", "run", str(file), "--once", "--master", "local[2]")
    assert disagreements(spec, lines) == []
    assert not (spec.home / "tables").exists()
    # Spark reads the table, in a process that has the bucket's environment from its start.
    before = newest(spec, outputs.FINAL)
    rebuild = ("rebuild", "windows", str(file), "--from", "2020-01-01", "--master", "local[2]")
    run(tmp_path, "pipeline", *rebuild)
    after = newest(spec, outputs.FINAL)
    assert {key: row["count"] for key, row in after.items()} == {
        key: row["count"] for key, row in before.items()
    }
    assert len(read_topic(spec, outputs.FINAL)) == 2 * len(before) > 0
    sql = "SELECT count(*) AS lines FROM events"
    told = run(tmp_path, "query", sql, "--pipeline", str(file), "--json")
    assert str(len(lines)) in told


def test_a_driver_that_dies_is_continued_on_another_machine(
    kafka: Broker, make_topic: Any, tmp_path: Path, bucket: str
) -> None:
    topic = make_topic(partitions=2)
    settings = f'trigger = "1 second"\nstate = "{bucket}/state"'
    text = SPEC.format(
        name=f"moved-{time.time_ns()}", bootstrap=kafka.bootstrap, topic=topic, settings=settings
    )
    files = [tmp_path / machine / "pipeline.toml" for machine in ("one", "two", "three")]
    for file in files:
        file.parent.mkdir()
        file.write_text(f'{text}[warehouse]\nlocation = "{bucket}/tables"\n')
    start_ms = time.time_ns() // 1_000_000 - 3 * 3600 * 1000
    lines = list(islice(Site(seed=8, start_ms=start_ms, lines_per_second=20).lines(), 4000))
    for number, file in enumerate(files[:2]):
        send(kafka.bootstrap, topic, lines[number * 1500 : (number + 1) * 1500])
        with Pipeline(file) as pipeline:
            pipeline.start_if_ended()
            # So that it is killed in the middle of a batch with lines.
            wait_for_lines_in_state(pipeline, f"{bucket}/state", after=number)
        shutil.rmtree(file.parent / "pipeline-data")
    rest = [*lines[3000:], closing_line(lines)]
    send(kafka.bootstrap, topic, rest)
    run(files[2].parent, "pipeline", "run", str(files[2]), "--once", "--master", "local[2]")
    assert disagreements(load_spec(files[2]), [*lines, rest[-1]]) == []


def wait_for_lines_in_state(pipeline: Pipeline, state: str, *, after: int) -> None:
    """Until more batches are kept than that."""
    deadline = time.monotonic() + 300
    files = files_of(state)
    first = sum(name.endswith(".batch") for name in files.names())
    assert first >= after
    while sum(name.endswith(".batch") for name in files.names()) == first:
        assert time.monotonic() < deadline, pipeline.log_tail()
        pipeline.start_if_ended()
        time.sleep(0.05)


def run(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "millstream", *arguments],
        cwd=folder,
        env={**os.environ, "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-1000:]
    return done.stdout
