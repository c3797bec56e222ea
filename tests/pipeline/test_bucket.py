"""A pipeline whose tables are in a bucket: its home is the driver's alone.

Covers pipeline/outputs.py, warehouse/locations.py, warehouse/reading.py.
"""

import os
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
from tests.pipeline.agreement import (
    SPEC,
    closing_line,
    disagreements,
    newest,
    read_topic,
    send,
)
from tests.support.broker import Broker
from tests.support.s3 import BUCKET, S3Server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_real_time_and_a_rebuild_with_tables_in_a_bucket(
    kafka: Broker, make_topic: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic(partitions=2)
    file = tmp_path / "pipeline.toml"
    text = SPEC.format(
        name=f"bucket-{time.time_ns()}", bootstrap=kafka.bootstrap, topic=topic, settings=""
    )
    file.write_text(f'{text}[warehouse]\nlocation = "s3://{BUCKET}/shop"\n')
    spec = load_spec(file)
    start_ms = time.time_ns() // 1_000_000 - 3 * 3600 * 1000
    lines = list(islice(Site(seed=7, start_ms=start_ms, lines_per_second=20).lines(), 2500))
    lines.append(closing_line(lines))
    send(kafka.bootstrap, topic, lines)
    with S3Server(tmp_path) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
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
