"""Arrow columns around the buffers that a compiled scanner fills."""

import numpy as np
import pyarrow as pa

from millstream.lines.schema import FIELDS, GAUGES


def numbers(kind: str, count: int, validity: bytes | None, data: bytes) -> pa.Array:
    buffers = [None if validity is None else pa.py_buffer(validity), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.type_for_alias(kind), count, buffers)


def texts(count: int, validity: bytes, ends: bytes, data: bytes) -> pa.StringArray:
    buffers = [pa.py_buffer(validity), pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), count, buffers)


def lists(count: int, width: int, flat: pa.DoubleArray) -> pa.ListArray:
    """As many numbers in each row."""
    ends = np.arange(count + 1, dtype=np.int32) * np.int32(width)
    return pa.ListArray.from_arrays(pa.array(ends), flat, type=GAUGES)


def maps(
    count: int, validity: bytes, ends: bytes, names: pa.StringArray, values: pa.StringArray
) -> pa.MapArray:
    fields = [FIELDS.key_field, FIELDS.item_field]
    entries = pa.StructArray.from_arrays([names, values], fields=fields)
    buffers = [pa.py_buffer(validity), pa.py_buffer(ends)]
    return pa.Array.from_buffers(FIELDS, count, buffers, children=[entries])
