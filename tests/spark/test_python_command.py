"""The command that starts Spark's Python processes without the zip of Spark's sources."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

from millstream.spark import worker_python

LIBRARIES = Path(pyspark.__file__).parent / "python" / "lib"


def zips() -> list[str]:
    return [str(LIBRARIES / "pyspark.zip"), *map(str, LIBRARIES.glob("py4j-*-src.zip"))]


def path_seen(command: str, *entries: str) -> list[str]:
    """PYTHONPATH in a process that was started with these entries."""
    program = "import os; print(os.environ['PYTHONPATH'])"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entries)}
    done = subprocess.run(
        [command, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.strip().split(os.pathsep)


def test_only_the_zips_of_this_spark_are_taken_off_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    folder = tmp_path / "it's here"
    folder.mkdir()
    command = worker_python(folder)
    assert command != sys.executable
    assert path_seen(command, *zips(), "/spark.jar", "/mine.zip") == ["/spark.jar", "/mine.zip"]
    other = ["/opt/spark/python/lib/pyspark.zip", "/mine.zip"]
    assert path_seen(command, *other) == other


def test_with_another_spark_it_is_this_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    assert worker_python(tmp_path) == sys.executable


def test_where_nothing_can_be_written_it_is_this_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    assert worker_python(tmp_path / "absent") == sys.executable


def test_workers_of_spark_import_what_pip_installed(spark: SparkSession, tmp_path: Path) -> None:
    context = spark.sparkContext
    python, context.pythonExec = context.pythonExec, worker_python(tmp_path)
    try:
        origin = udf(lambda _: __import__("pyspark").__file__)
        [found] = spark.range(1).select(origin("id")).collect()
    finally:
        context.pythonExec = python
    assert Path(found[0]) == Path(pyspark.__file__)
