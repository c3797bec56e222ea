"""Spark's data source `millstream`: topics as DataFrames, batch and stream, without a jar.

Installed with the extra `spark`; Spark finds it through `pyspark_millstream`. Two functions
for programs are here: `lag` tells how far a streaming query is behind, `upserts` writes the
rows of update mode from foreachBatch.
"""

from millstream.spark.progress import Lag, lag
from millstream.spark.upserts import upserts

__all__ = ["Lag", "lag", "upserts"]
