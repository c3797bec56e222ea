"""Spark's data source `millstream`: topics as DataFrames, batch and stream, without a jar.

Installed with the extra `spark`; Spark finds it through `pyspark_millstream`. For programs:
`lag` returns how far a streaming query is behind, `upserts` writes the rows of update mode from
foreachBatch, `map_records` and `map_record_stream` run a function where records are read,
`read_table` and `table_dataset` read the tables of a pipeline without a jar, `worker_python` makes
Spark's Python processes start faster.
`source` is what Spark calls; `reader`, `stream` and `writer` do the work. May use client,
records, wire, storage's file formats and warehouse; knows no broker and no pipeline.
"""

import importlib
from typing import TYPE_CHECKING

# Not later: its module has the same name.
from millstream.spark.upserts import upserts

if TYPE_CHECKING:
    from millstream.spark.mapping import map_record_stream, map_records
    from millstream.spark.progress import Lag, lag
    from millstream.spark.python_command import worker_python
    from millstream.warehouse.reading import read_table, table_dataset

__all__ = [
    "Lag",
    "lag",
    "map_record_stream",
    "map_records",
    "read_table",
    "table_dataset",
    "upserts",
    "worker_python",
]

_MODULES = {
    "Lag": "millstream.spark.progress",
    "lag": "millstream.spark.progress",
    "map_record_stream": "millstream.spark.mapping",
    "map_records": "millstream.spark.mapping",
    "read_table": "millstream.warehouse.reading",
    "table_dataset": "millstream.warehouse.reading",
    "worker_python": "millstream.spark.python_command",
}


def __getattr__(name: str) -> object:
    # Spark imports this package in several processes for every query, which need none of them.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
