"""Lines that do not count, as records of the dead-letter topic.

`lines.parser` decides which lines these are, and the reason. A record has the line, and in its
headers the reason and the origin.
"""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.pipeline.local_time import local_text

# Columns of an event that a dead letter is made from.
NEEDED: Final = (
    *("source", "value", "problem", "detail", "topic", "partition", "offset"),
    *("record_time", "event_time"),
)
_HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])
RECORDS_SCHEMA: Final = pa.schema(
    [
        *(("topic", pa.string()), ("key", pa.binary()), ("value", pa.binary())),
        ("headers", pa.list_(pa.field("element", _HEADER))),
    ]
)


def letters(events: pa.RecordBatch, topic: str, timezone: str) -> pa.RecordBatch:
    """Events with a problem as rows that can be written; in the order of the events."""
    columns = [
        pa.repeat(pa.scalar(topic), len(events)),
        events.column("source").cast(pa.binary()),
        events.column("value"),
        _headers(events, timezone),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECORDS_SCHEMA)


def _headers(events: pa.RecordBatch, timezone: str) -> pa.ListArray:
    values = {
        "reason": events.column("problem"),
        **{name: events.column(name) for name in ("detail", "topic", "partition", "offset")},
        **{
            name: local_text(events.column(name), timezone)
            for name in ("record_time", "event_time")
        },
    }
    count, width = len(events), len(values)
    texts = [pc.fill_null(each.cast(pa.string()), "").cast(pa.binary()) for each in values.values()]
    # All values of a header follow each other; those of a line should.
    places = np.arange(count * width).reshape(width, count).T.ravel()
    flat = pa.StructArray.from_arrays(
        [
            pa.array(list(values)).take(pa.array(places // max(count, 1))),
            pa.concat_arrays(texts).take(pa.array(places)),
        ],
        fields=list(_HEADER),
    )
    ends = pa.array(np.arange(count + 1) * width, pa.int32())
    return pa.ListArray.from_arrays(ends, flat, type=RECORDS_SCHEMA.field("headers").type)
