"""Spark's data source `millstream`: topics as DataFrames, batch and stream, without a jar.

Installed with the extra `spark`; Spark finds it through `pyspark_millstream`.
"""
