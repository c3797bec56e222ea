"""The columns of an event, and what a scanner makes of a line before they are."""

from typing import Final

import pyarrow as pa

TIME: Final = pa.timestamp("us", tz="UTC")
FIELDS: Final = pa.map_(pa.string(), pa.string())
GAUGES: Final = pa.list_(pa.float64())

EVENT_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("record_time", TIME),
        ("source", pa.string()),
        ("value", pa.binary()),
        ("format", pa.string()),
        ("event_time", TIME),
        ("host", pa.string()),
        ("service", pa.string()),
        ("program", pa.string()),
        ("address", pa.string()),
        ("user", pa.string()),
        ("visitor", pa.string()),
        ("method", pa.string()),
        ("path", pa.string()),
        ("query", pa.string()),
        ("status", pa.int32()),
        ("size_bytes", pa.int64()),
        ("duration_ms", pa.float64()),
        ("level", pa.string()),
        ("referrer", pa.string()),
        ("agent", pa.string()),
        ("message", pa.string()),
        ("fields", FIELDS),
        ("gauges", GAUGES),
        ("detail", pa.string()),
        ("problem", pa.string()),
    ]
)

# Columns that a scanner makes when they are asked for; `visitor` is what is hashed later.
SCANNED: Final = (
    *("host", "service", "program", "address", "user", "visitor", "method", "path", "query"),
    *("level", "referrer", "agent", "message", "status", "size_bytes", "duration_ms"),
    *("fields", "gauges"),
)
