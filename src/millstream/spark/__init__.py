"""Spark's data source `millstream`: topics as DataFrames, batch and stream, without a jar.

Installed with the extra `spark`; Spark finds it through `pyspark_millstream`. Functions
for programs are here: `lag` tells how far a streaming query is behind, `upserts` writes the
rows of update mode from foreachBatch, and `read_table` and `table_dataset` read the tables of
a pipeline without a jar.
"""

from millstream.spark.progress import Lag, lag
from millstream.spark.upserts import upserts
from millstream.warehouse.reading import read_table, table_dataset

__all__ = ["Lag", "lag", "read_table", "table_dataset", "upserts"]
