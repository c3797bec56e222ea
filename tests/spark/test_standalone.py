"""The same job on a standalone cluster: a master and two workers, as processes."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from millstream.testing import Broker
from tests.spark.conftest import consume
from tests.support.tools import run_checked

# Six JVMs: a minute on a quiet machine, several on a busy one.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

START_SECONDS_MAX = 120

JOB = """
import sys
from pyspark.sql import SparkSession
servers = {"kafka.bootstrap.servers": sys.argv[1]}
spark = SparkSession.builder.getOrCreate()
numbers = spark.range(2000, numPartitions=4).selectExpr("CAST(id AS STRING) AS value")
numbers.write.format("millstream").options(**servers, topic="numbers").mode("append").save()
stream = spark.readStream.format("millstream").options(
    **servers, subscribe="numbers", startingOffsets="earliest", maxOffsetsPerTrigger="900")
query = (stream.load().select("value").writeStream.format("millstream")
    .options(**servers, topic="copy").option("checkpointLocation", sys.argv[2])
    .trigger(availableNow=True).start())
query.awaitTermination()
hosts = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
assert hosts == 2, hosts
"""


def start(folder: Path, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
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


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    started = []
    try:
        arguments = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        class_name = "org.apache.spark.deploy.master.Master"
        started.append(start(tmp_path, "master", class_name, *arguments))
        url = wait_for(tmp_path / "master.log", r"(spark://127\.0\.0\.1:\d+)")
        for number in range(2):
            worker = ["--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "1g"]
            worker += ["--work-dir", str(tmp_path / f"work-{number}"), url]
            class_name = "org.apache.spark.deploy.worker.Worker"
            started.append(start(tmp_path, f"worker-{number}", class_name, *worker))
        for number in range(2):
            wait_for(tmp_path / f"worker-{number}.log", r"(Successfully registered)")
        yield url
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(30)


def test_a_copy_runs_on_a_master_and_two_workers(master: str, tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(JOB)
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    with Broker(topics={"numbers": 4, "copy": 2}) as broker:
        command = ["env", f"PYSPARK_PYTHON={sys.executable}", str(submit), "--master", master]
        for setting in (
            "spark.driver.host=127.0.0.1",
            "spark.driver.bindAddress=127.0.0.1",
            "spark.ui.enabled=false",
            "spark.executor.memory=600m",
            "spark.executor.cores=1",
            "spark.scheduler.minRegisteredResourcesRatio=1.0",
        ):
            command += ["--conf", setting]
        checkpoint = str(tmp_path / "checkpoint")
        run_checked([*command, str(job), broker.bootstrap, checkpoint], timeout_seconds=400)
        values = consume(broker.bootstrap, "copy", partitions=2, isolation="read_committed")
    assert sorted(map(int, values)) == list(range(2000))
