"""A Spark job to be shot at: copies a topic to another, exactly once, until it is done.

    python -m tests.spark.copy_job BOOTSTRAP SOURCE SINK FOLDER

A file `fail-after-commit` in FOLDER makes one commit raise after it took effect.
"""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

import pyspark_millstream
from millstream.spark.option_table import Use
from millstream.spark.write_options import parse_write_options
from millstream.spark.writer import StreamWriter


class FailingWriter(StreamWriter):
    """Commits, and then says it did not, as a lost answer would."""

    def __init__(self, writer_options: object, flag: str) -> None:
        super().__init__(writer_options)  # type: ignore[arg-type]  # kept as it comes
        self._flag = Path(flag)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        super().commit(messages, batchId)
        if self._flag.exists() and batchId > 0:
            self._flag.unlink()
            raise RuntimeError("the answer to the commit was lost")


class FailingSource(pyspark_millstream.DefaultSource):
    @classmethod
    def name(cls) -> str:
        return "failing"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        options = dict(self.options)
        flag = options.pop("flag")
        return FailingWriter(parse_write_options(options, schema, Use.STREAM_WRITE), flag)


def main(bootstrap: str, source: str, sink: str, folder: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        # A task may fail three times: a worker that is killed is a failed task.
        SparkSession.builder.master("local[2,4]")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        # Short lives: the best compiler's work would never pay.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )
    spark.dataSource.register(FailingSource)
    servers = {"kafka.bootstrap.servers": bootstrap}
    stream = (
        spark.readStream.format("millstream")
        .options(**servers, subscribe=source, startingOffsets="earliest")
        .option("maxOffsetsPerTrigger", "500")
        .load()
    )
    query = (
        stream.select("key", "value")
        .writeStream.format("failing")
        .options(**servers, topic=sink, flag=f"{folder}/fail-after-commit")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
