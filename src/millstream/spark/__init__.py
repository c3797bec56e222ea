"""Spark's data source `millstream`: topics as DataFrames, batch and stream, without a jar.

Installed with the extra `spark`; Spark finds it through `pyspark_millstream`. For programs:
`lag` returns how far a streaming query is behind, `upserts` writes the rows of update mode from
foreachBatch, `map_records` and `map_record_stream` run a function where records are read,
`read_table` and `table_dataset` read the tables of a pipeline without a jar.
`source` is what Spark calls; `reader`, `stream` and `writer` do the work. May use client,
records, wire, storage's file formats and warehouse; knows no broker and no pipeline.
"""

from millstream.spark.mapping import map_record_stream, map_records
from millstream.spark.progress import Lag, lag
from millstream.spark.upserts import upserts
from millstream.warehouse.reading import read_table, table_dataset

__all__ = [
    "Lag",
    "lag",
    "map_record_stream",
    "map_records",
    "read_table",
    "table_dataset",
    "upserts",
]
