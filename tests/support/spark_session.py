"""The one Spark of a test run: a process has one JVM, which keeps what it was started with."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Another data source on the path, found by the same search as ours.
NEIGHBOUR = """
from pyspark.sql.datasource import DataSource, DataSourceReader

class Reader(DataSourceReader):
    def read(self, partition):
        yield (7,)

class DefaultSource(DataSource):
    @classmethod
    def name(cls):
        return "neighbour"
    def schema(self):
        return "number int"
    def reader(self, schema):
        return Reader()
"""


def start_spark(folder: Path) -> "SparkSession":
    """Its files go below `folder`."""
    # Spark takes python3 from the PATH for its workers, which need not be this one.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    neighbours = folder / "neighbours"
    neighbours.mkdir()
    (neighbours / "pyspark_neighbour.py").write_text(NEIGHBOUR)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(neighbours), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    from pyspark.sql import SparkSession

    from tests.support.spark_connector import connector_jars

    return (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        # Short lives: the best compiler's work would never pay.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.log.level", "OFF")
        # Spark's own Kafka connector, which must work against us as well.
        .config("spark.jars", connector_jars())
        .getOrCreate()
    )
