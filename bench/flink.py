"""Windows of hosts in Flink SQL on Apache Kafka: what the pipeline is held against beside Spark.

For each minute and host: lines, errors (a status of 500 or more) and bytes, from the lines of the
made-up site, written to a topic as they change. Flink runs as one process with two slots, and with
what its documentation recommends for aggregations: mini-batches of one second, in two phases.

It is given less to do than the pipeline, which parses every field of every line and writes all of
its results: the time of a line is that of its record, the host is taken from the record's key, and
of a line only the status and the size are read, from JSON by JSON_VALUE and from access logs by
one regular expression. Nothing is read from the other lines, one in two hundred.
"""

import fcntl
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer

from bench import clients
from bench.pipeline import Feed, send_lines
from millstream.ingest.traffic import TrafficLine
from tests.support.tools import MissingTool, cache_directory, require, run_checked

VERSION: Final = "2.2.0"
_JARS: Final = ("flink-sql-connector-kafka:5.0.0-2.2", f"flink-sql-gateway:{VERSION}")
_CONFIGURATION: Final = "execution.target: local\nparallelism.default: 2\n"
_JAVA_OPTIONS: Final = (
    *("-Xmx2g", "-XX:+UseG1GC"),
    *("--add-opens=java.base/java.util=ALL-UNNAMED", "--add-opens=java.base/java.lang=ALL-UNNAMED"),
)
_SECONDS_MAX: Final = 300.0
_INSTALL_SECONDS_MAX: Final = 900.0
_MINUTE_MS: Final = 60_000
_ERROR_STATUS: Final = 500

_SQL: Final = r"""
SET 'table.dml-sync' = 'true';
SET 'table.local-time-zone' = 'UTC';
SET 'table.exec.mini-batch.enabled' = 'true';
SET 'table.exec.mini-batch.allow-latency' = '1 s';
SET 'table.exec.mini-batch.size' = '50000';
SET 'table.optimizer.agg-phase-strategy' = 'TWO_PHASE';
SET 'execution.checkpointing.interval' = '10 s';
CREATE TABLE lines (
  source STRING,
  line STRING,
  record_time TIMESTAMP_LTZ(3) METADATA FROM 'timestamp'
) WITH (
  'connector' = 'kafka', 'topic' = '@lines@', 'properties.bootstrap.servers' = '@bootstrap@',
  'properties.isolation.level' = 'read_committed', 'scan.startup.mode' = 'earliest-offset',
  'key.format' = 'raw', 'key.fields' = 'source',
  'value.format' = 'raw', 'value.fields-include' = 'EXCEPT_KEY'
);
CREATE TABLE windows (
  window_start TIMESTAMP_LTZ(3),
  host STRING,
  lines BIGINT,
  errors BIGINT,
  size_bytes BIGINT,
  PRIMARY KEY (window_start, host) NOT ENFORCED
) WITH (
  'connector' = 'upsert-kafka', 'topic' = '@windows@',
  'properties.bootstrap.servers' = '@bootstrap@', 'key.format' = 'json', 'value.format' = 'json',
  'value.json.timestamp-format.standard' = 'ISO-8601'
);
INSERT INTO windows
SELECT
  window_start, host,
  COUNT(*), COUNT(*) FILTER (WHERE status >= 500), COALESCE(SUM(size_bytes), 0)
FROM (
  SELECT
    window_start,
    host,
    CASE WHEN line LIKE '{%' THEN JSON_VALUE(line, '$.status' RETURNING INTEGER)
      ELSE TRY_CAST(SPLIT_INDEX(answer, ' ', 0) AS INTEGER) END AS status,
    TRY_CAST(SPLIT_INDEX(answer, ' ', 1) AS BIGINT) AS size_bytes
  FROM (
    SELECT
      FLOOR(record_time TO MINUTE) AS window_start,
      SPLIT_INDEX(source, '/', 0) AS host,
      line,
      CASE WHEN line LIKE '{%' THEN CAST(NULL AS STRING)
        ELSE REGEXP_EXTRACT(line, '^\S+ \S+ \S+ \[[^\]]+\] "[^"]*" (\d{3} \d+) ', 1) END AS answer
    FROM lines
  )
)
GROUP BY window_start, host;
"""

# By the start of a window, in milliseconds, and the host: lines, errors, bytes.
Windows = dict[tuple[int, str], tuple[int, int, int]]


class NotInstalled(Exception):
    """Flink could not be installed; the text says why."""


def install() -> Path:
    """The folder of Flink's jars; fetched once, 330 MB."""
    directory = cache_directory() / f"flink-{VERSION}"
    directory.mkdir(exist_ok=True)
    with open(directory / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (directory / "complete").exists():
            _fetch(directory)
            (directory / "complete").touch()
    return directory


def _fetch(directory: Path) -> None:
    package = f"apache-flink-libraries=={VERSION}"
    wanted = ["--quiet", "--no-deps", "--upgrade", "--target", str(directory), package]
    commands = [[sys.executable, "-m", "pip", "install", *wanted]]
    try:
        for jar in _JARS:
            what = [f"-Dartifact=org.apache.flink:{jar}", f"-DoutputDirectory={directory / 'jars'}"]
            commands.append([require("mvn"), "-q", "-B", "dependency:copy", *what])
        for command in commands:
            run_checked(command, cwd=directory, timeout_seconds=_INSTALL_SECONDS_MAX)
    except (AssertionError, MissingTool, subprocess.TimeoutExpired) as failed:
        raise NotInstalled(str(failed)) from failed


def run_windows(feed: Feed, folder: Path, lines: list[TrafficLine]) -> float:
    """Lines per second until all of them are in windows; asserts that the windows are right.

    The lines are sent twice, and the second time counts: Java compiles most of the code before.
    """
    home = install()
    folder.mkdir()
    names = {"lines": f"{folder.name}-lines", "windows": f"{folder.name}-windows"}
    clients.create_topic(feed.bootstrap, names["lines"], partitions=2, config={})
    compacted = {"cleanup.policy": "compact"}
    clients.create_topic(feed.bootstrap, names["windows"], partitions=2, config=compacted)
    settings = {"bootstrap.servers": feed.bootstrap, "group.id": folder.name}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
    consumer.subscribe([names["windows"]])
    found: Windows = {}
    with closing(consumer), _running(home, folder, feed.bootstrap, names) as process:
        send_lines(feed, names["lines"], lines)
        _wait_for(consumer, found, len(lines), process)
        began = time.monotonic()
        send_lines(feed, names["lines"], lines)
        _wait_for(consumer, found, 2 * len(lines), process)
        seconds = time.monotonic() - began
    assert found == windows_of([*lines, *lines]), "Flink's windows are others"
    return len(lines) / seconds


@contextmanager
def _running(
    home: Path, folder: Path, bootstrap: str, names: Mapping[str, str]
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run the job in a separate process, which ends with it."""
    (folder / "config.yaml").write_text(_CONFIGURATION)
    text = _SQL.replace("@bootstrap@", bootstrap)
    for name, topic in names.items():
        text = text.replace(f"@{name}@", topic)
    (folder / "job.sql").write_text(text)
    jars = ":".join(f"{home / each}/*" for each in ("pyflink/lib", "pyflink/opt", "jars"))
    client = "org.apache.flink.table.client.SqlClient"
    command = [require("java"), *_JAVA_OPTIONS, "-cp", jars, client, "embedded", "-f", "job.sql"]
    environment = {**os.environ, "FLINK_CONF_DIR": str(folder), "HOME": str(folder)}
    with open(folder / "output.log", "ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=environment,
        )
    try:
        yield process
    except AssertionError as failed:
        said = (folder / "output.log").read_text(errors="replace")[-3000:]
        raise AssertionError(f"{failed}\n{said}") from failed
    finally:
        process.kill()
        process.wait()


def _wait_for(
    consumer: Consumer, found: Windows, lines: int, process: "subprocess.Popen[bytes]"
) -> None:
    """Read windows until they have counted so many lines."""
    deadline = time.monotonic() + _SECONDS_MAX
    while (counted := sum(counts[0] for counts in found.values())) < lines:
        assert process.poll() is None, "Flink has ended"
        assert time.monotonic() < deadline, f"{counted} of {lines} lines are in Flink's windows"
        for message in consumer.consume(1000, 0.1):
            if message.error() is None and (value := message.value()) is not None:
                row = json.loads(value)
                counts = (row["lines"], row["errors"], row["size_bytes"])
                start = datetime.fromisoformat(row["window_start"])
                found[round(start.timestamp() * 1000), row["host"]] = counts


def windows_of(lines: Iterable[TrafficLine]) -> Windows:
    """What Flink has to find, read plainly."""
    counts: Counter[tuple[int, str]] = Counter()
    errors: Counter[tuple[int, str]] = Counter()
    sizes: Counter[tuple[int, str]] = Counter()
    for line in lines:
        host, _, kind = line.source.partition("/")
        key = (line.time_ms - line.time_ms % _MINUTE_MS, host)
        counts[key] += 1
        if kind == "access":
            status, size_bytes = line.data.split(b'" ')[1].split(b" ")[:2]
            errors[key] += int(status) >= _ERROR_STATUS
            sizes[key] += int(size_bytes)
        elif kind == "requests":
            errors[key] += json.loads(line.data)["status"] >= _ERROR_STATUS
    return {key: (counts[key], errors[key], sizes[key]) for key in counts}
