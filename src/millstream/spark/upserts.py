"""Update mode into a topic: the newest row of each key, from foreachBatch.

Spark runs no Python sink in update mode. In foreachBatch a batch of changed rows is an
ordinary DataFrame; written with its key to a compacted topic, the newest row of a key wins.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def upserts(
    options: Mapping[str, str], *, key: Sequence[str] | None = None
) -> "Callable[[DataFrame, int], None]":
    """A function for `foreachBatch` that writes each micro-batch exactly once.

    `options` are those of a write. With `key`, rows of any columns become JSON: the named
    columns are the key, all of them the value. Without it the rows must already have `key` and
    `value`.
    """
    chosen = {"semantics": "exactly-once", **options}

    def write(rows: "DataFrame", batch_id: int) -> None:
        if key is not None:
            rows = _as_records(rows, key)
        writer = rows.write.format("millstream").options(**chosen).option("batchId", batch_id)
        writer.mode("append").save()

    return write


def _as_records(rows: "DataFrame", key: Sequence[str]) -> "DataFrame":
    from pyspark.sql.functions import struct, to_json

    return rows.select(
        to_json(struct(*key)).alias("key"), to_json(struct(*rows.columns)).alias("value")
    )
