"""The tables of a pipeline, without a jar: Delta, Iceberg and plain Parquet.

`tables` commits each micro-batch exactly once, `reading` finds the files of a table's
current version, and there is one module for each format. May use Arrow, Spark and the schema of
`lines`; knows nothing of pipelines, which name the tables they want.
"""

from typing import Final

# The two tables of a pipeline: lines as they came, and what was read from them.
RAW: Final = "raw"
EVENTS: Final = "events"
