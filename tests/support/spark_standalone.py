"""A standalone cluster of Spark: a master and workers of one core, as processes on loopback."""

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

START_SECONDS_MAX = 120


def start(folder: Path, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
    }
    with open(folder / f"{name}.log", "wb") as log:
        return subprocess.Popen(
            [str(spark_class), *arguments], stdout=log, stderr=log, env=environment, cwd=folder
        )


def wait_for(path: Path, pattern: str) -> str:
    deadline = time.monotonic() + START_SECONDS_MAX
    while (found := re.search(pattern, path.read_text(errors="replace"))) is None:
        assert time.monotonic() < deadline, path.read_text(errors="replace")[-2000:]
        time.sleep(0.1)
    return found[1]


@dataclass(frozen=True)
class StandaloneCluster:
    # Of the master.
    url: str
    workers: list[subprocess.Popen[bytes]]


@contextmanager
def running_cluster(folder: Path, *, workers: int = 2) -> Iterator[StandaloneCluster]:
    started = []
    try:
        arguments = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        class_name = "org.apache.spark.deploy.master.Master"
        started.append(start(folder, "master", class_name, *arguments))
        url = wait_for(folder / "master.log", r"(spark://127\.0\.0\.1:\d+)")
        for number in range(workers):
            worker = ["--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "1g"]
            worker += ["--work-dir", str(folder / f"work-{number}"), url]
            class_name = "org.apache.spark.deploy.worker.Worker"
            started.append(start(folder, f"worker-{number}", class_name, *worker))
        for number in range(workers):
            wait_for(folder / f"worker-{number}.log", r"(Successfully registered)")
        yield StandaloneCluster(url, started[1:])
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(30)
