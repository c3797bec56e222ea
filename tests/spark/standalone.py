"""The same job on a standalone cluster: a master and two workers, as processes.

Driver and workers have Millstream from a wheel, not from the checkout. Six JVMs and a build:
a minute on a quiet machine, several on a busy one. So it is a soak, not a test.
"""

from collections.abc import Iterator
from pathlib import Path

import pyspark

from tests.faults.kills import Round
from tests.spark.conftest import consume
from tests.support.broker import Broker
from tests.support.spark_standalone import running_cluster
from tests.support.tools import run_checked
from tests.support.wheel import install_wheel

ROWS = 2000
SETTINGS = (
    "spark.driver.host=127.0.0.1",
    "spark.driver.bindAddress=127.0.0.1",
    "spark.ui.enabled=false",
    "spark.executor.memory=600m",
    "spark.executor.cores=1",
    "spark.scheduler.minRegisteredResourcesRatio=1.0",
)

# Its third argument is the folder that everybody must have Millstream from.
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

def place(_):
    import millstream, pyspark_millstream
    from millstream.records import columns, rows
    is_compiled = columns.COMPILED is not None and rows.COMPILED is not None
    return millstream.__file__, pyspark_millstream.__file__, is_compiled

places = [place(0), *spark.sparkContext.parallelize(range(4), 4).map(place).collect()]
for package, finder, is_compiled in places:
    assert package.startswith(sys.argv[3]) and finder.startswith(sys.argv[3]), places
    assert is_compiled, "the wheel has no compiled part"
"""


def standalone_rounds(folder: Path, seeds: list[int]) -> Iterator[Round]:
    for seed in seeds:
        yield _round(folder / f"cluster-{seed}", seed)


def _round(folder: Path, seed: int) -> Round:
    folder.mkdir()
    job = folder / "job.py"
    job.write_text(JOB)
    python = install_wheel(folder)
    with running_cluster(folder) as cluster, Broker(topics={"numbers": 4, "copy": 2}) as broker:
        submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
        # The workers are told by the driver which Python to start.
        command = ["env", "-u", "PYTHONPATH", f"PYSPARK_PYTHON={python}", str(submit)]
        command += ["--master", cluster.url]
        for setting in SETTINGS:
            command += ["--conf", setting]
        arguments = [broker.bootstrap, str(folder / "checkpoint"), str(python.parent.parent)]
        run_checked([*command, str(job), *arguments], timeout_seconds=600, cwd=folder)
        values = consume(broker.bootstrap, "copy", partitions=2, isolation="read_committed")
    problems = []
    if sorted(map(int, values)) != list(range(ROWS)):
        problems.append(f"{len(values)} rows in the copy, {len(set(values))} of them different")
    return Round(seed=seed, acknowledged=len(values), fault="none", problems=problems)
