"""The Spark session a pipeline runs in: quiet, and on loopback."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.pipeline.line_source import register_lines
from millstream.pipeline.spec import Spec
from millstream.spark.python_command import worker_python
from pyspark_millstream import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def open_session(
    spec: Spec, *, master: str | None, settings: Mapping[str, str] | None = None
) -> "SparkSession":
    """A session of `master`, or of whatever `spark-submit` or a cluster chose already."""
    from pyspark.sql import SparkSession

    is_local = master is not None and master.startswith("local")
    if "PYSPARK_PYTHON" not in os.environ:
        # Spark takes python3 from the PATH for its workers, which need not be this one.
        os.environ["PYSPARK_PYTHON"] = _local_python(spec.home) if is_local else sys.executable
    builder = SparkSession.builder.appName(f"millstream-{spec.name}")
    if master is not None:
        builder = builder.master(master)
    if is_local:
        for name, value in _local_settings(spec.home).items():
            builder = builder.config(name, value)
    for name, value in (settings or {}).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    prepare(session, spec)
    return session


def _local_python(home: Path) -> str:
    home.mkdir(parents=True, exist_ok=True)
    return worker_python(home)


def _local_settings(home: Path) -> dict[str, str]:
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": str((home / "spark-warehouse").absolute()),
        "spark.log.level": "ERROR",
    }


def prepare(session: "SparkSession", spec: Spec) -> None:
    """Settings that queries need, which may be set on a session that is already there."""
    settings = {
        "spark.sql.session.timeZone": spec.timezone,
        "spark.sql.shuffle.partitions": str(spec.state_partitions),
        # Java compiles no larger method: it would be interpreted for ever. Above this Spark makes
        # code for each step.
        "spark.sql.codegen.hugeMethodLimit": "8000",
        # Many windows at once have more groups than Spark's 128, above which it sorts all rows.
        "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "100000",
        # A file a batch for each of 2,880 batches of a day at 30 s would only be litter.
        "spark.sql.streaming.minBatchesToRetain": "20",
    }
    for name, value in settings.items():
        session.conf.set(name, value)
    # Spark's own search was seen to miss it once in a session that had found it before.
    register(session)
    register_lines(session)
