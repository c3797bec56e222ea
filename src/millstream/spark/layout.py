"""The columns of a read: those of Spark's own Kafka source, in its order."""

from typing import Final

from millstream.lazy_dataclass import dataclass

COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADERS_COLUMN: Final = "headers"


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns to return, in order."""

    columns: tuple[str, ...]
