"""What Spark calls when rows are written: `write` in tasks, the rest on the driver.

`abort` is empty on purpose. Spark calls it with all messages when `commit` raised, even if
it raised after it took effect. The next run undoes what has to be undone, because it takes
over the same transactional names.
"""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from millstream.spark.exactly_once import commit_exactly_once, write_exactly_once
from millstream.spark.write_options import WriteOptions
from millstream.spark.writing import write_at_least_once


def _write(options: WriteOptions, batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
    if options.is_exactly_once:
        return write_exactly_once(options, batches)
    return write_at_least_once(options, batches)


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _write(self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._options.is_exactly_once:
            commit_exactly_once(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        pass


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _write(self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        if self._options.is_exactly_once:
            commit_exactly_once(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        pass
