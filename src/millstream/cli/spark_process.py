"""Spark inside a command: its session, with Java's output in a file and not on the screen."""

import importlib.util
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream.cli.failure import CommandFailed
from millstream.pipeline.spec import Spec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK_LOG: Final = "spark.log"


def check_installed() -> None:
    missing = [name for name in ("pyspark", "deltalake") if importlib.util.find_spec(name) is None]
    if missing:
        raise CommandFailed(
            f"{' and '.join(missing)} not installed: pip install 'millstream[pipeline]'"
        )


def _check_tables(spec: Spec) -> None:
    if spec.warehouse == "iceberg" and importlib.util.find_spec("pyiceberg") is None:
        raise CommandFailed("pyiceberg not installed: pip install 'millstream[pipeline,iceberg]'")


@contextmanager
def spark_session(spec: Spec, *, master: str | None) -> "Iterator[SparkSession]":
    """A session for the block; its log is in the home of the pipeline."""
    _check_tables(spec)
    spec.home.mkdir(parents=True, exist_ok=True)
    log_path = spec.home / SPARK_LOG
    with in_plain_words(log_path):
        with stderr_into(log_path), ending_what_began():
            from millstream.pipeline.spark_session import open_session

            session = open_session(spec, master=master)
        try:
            yield session
        finally:
            # While Java stops, Spark's threads in this process complain of closed connections.
            with stderr_into(log_path):
                session.stop()


@contextmanager
def ending_what_began() -> Iterator[None]:
    """End the processes that the block started if it does not complete.

    If interrupted while Java starts, PySpark removes the file through which both would have
    connected, and Java would keep running forever.
    """
    before = _children()
    try:
        yield
    except BaseException:
        for process in _children() - before:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGTERM)
        raise


def _children() -> set[int]:
    """Processes that this thread started; none if the system does not report them."""
    path = Path(f"/proc/self/task/{threading.get_native_id()}/children")
    return set(map(int, path.read_text().split())) if path.exists() else set()


@contextmanager
def in_plain_words(log_path: Path) -> Iterator[None]:
    """What Spark raises, without its long tracebacks."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as failed:
        raise CommandFailed(f"{_words(failed)}. For details see {log_path}") from None


def _words(failed: Exception) -> str:
    from py4j.protocol import Py4JError, Py4JNetworkError

    from millstream.pipeline.run import reason

    if not isinstance(failed, ConnectionError | Py4JNetworkError):
        try:
            return reason(str(failed))
        except (Py4JError, ConnectionError):
            # Java itself is asked for the text of its exception.
            pass
    return "Spark's Java process is gone"


@contextmanager
def stderr_into(path: Path) -> Iterator[None]:
    """Redirects the output of Java and Spark's workers, now and later, to a file.

    They inherit the descriptor when they start; ours is restored afterwards.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with path.open("ab") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
