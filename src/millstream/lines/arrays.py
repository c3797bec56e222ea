"""Arrow columns around buffers, of numpy or of the compiled scanner.

Not by `pa.array` and `pa.scalar`: those import pandas, which takes a new worker longer than
its first hundred thousand lines.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millstream.lines.schema import FIELDS, GAUGES


def _bits(is_set: NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(is_set, bitorder="little"))


def of_numpy(values: NDArray[Any], is_there: NDArray[np.bool_] | None = None) -> pa.Array:
    """A column of these values, null where they are said not to be there."""
    validity = None if is_there is None else _bits(is_there)
    data = _bits(values) if values.dtype == np.bool_ else pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [validity, data])


def of_texts(values: Sequence[str | None]) -> pa.StringArray:
    encoded = [b"" if value is None else value.encode() for value in values]
    ends = np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(each) for each in encoded], out=ends[1:])
    is_there = np.array([value is not None for value in values], np.bool_)
    buffers = [_bits(is_there), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(values), buffers)


def is_valid(column: pa.Array) -> NDArray[np.bool_]:
    validity = column.buffers()[0]
    if validity is None or not len(column):
        return np.ones(len(column), np.bool_)
    bits = np.unpackbits(np.frombuffer(validity, np.uint8), bitorder="little")
    return bits[column.offset : column.offset + len(column)].astype(np.bool_)


def to_numpy(column: pa.Array) -> NDArray[Any]:
    """The numbers of a column; where they are null they may be anything."""
    kind = np.dtype(column.type.to_pandas_dtype())
    # An empty column need not have a buffer.
    values = np.frombuffer(column.buffers()[1], kind) if len(column) else np.zeros(0, kind)
    return values[column.offset : column.offset + len(column)]


def numbers(kind: str, count: int, validity: bytes | None, data: bytes) -> pa.Array:
    buffers = [None if validity is None else pa.py_buffer(validity), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.type_for_alias(kind), count, buffers)


def texts(count: int, validity: bytes, ends: bytes, data: bytes) -> pa.StringArray:
    buffers = [pa.py_buffer(validity), pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), count, buffers)


def lists(count: int, width: int, flat: pa.DoubleArray) -> pa.ListArray:
    """As many numbers in each row."""
    ends = np.arange(count + 1, dtype=np.int32) * np.int32(width)
    return pa.ListArray.from_arrays(of_numpy(ends), flat, type=GAUGES)


def maps(
    count: int, validity: bytes, ends: bytes, names: pa.StringArray, values: pa.StringArray
) -> pa.MapArray:
    fields = [FIELDS.key_field, FIELDS.item_field]
    entries = pa.StructArray.from_arrays([names, values], fields=fields)
    buffers = [pa.py_buffer(validity), pa.py_buffer(ends)]
    return pa.Array.from_buffers(FIELDS, count, buffers, children=[entries])
