"""A parser of the user's own: Arrow in, Arrow out, a batch of lines at a time.

The function gets a RecordBatch with the columns `source`, `line` and `record_time`, and
returns a RecordBatch or Table with as many rows: columns of any names, as text or numbers,
that mean what the fields of a JSON line mean (`ts`, `service`, `status`, ...). A row without
`ts` is a dead letter. A function that raises makes dead letters of its batch, not an end.
"""

import importlib
import logging
from collections.abc import Callable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millstream.lines.arrays import is_valid, of_numpy, of_texts
from millstream.lines.schema import FIELDS

log = logging.getLogger(__name__)

Parser = Callable[[pa.RecordBatch], "pa.RecordBatch | pa.Table"]


def load_parser(name: str) -> Parser:
    module, _, function = name.partition(":")
    found: Parser = getattr(importlib.import_module(module), function)
    return found


def parse_rows(
    lines: pa.RecordBatch, parsers: list[Parser], chosen: NDArray[np.int64]
) -> pa.MapArray:
    """The fields of each row by the parser whose number is chosen for it; null where it is -1.

    `lines` has `source`, `line` and `record_time`; a row without a line is not parsed.
    """
    is_line = is_valid(lines.column("line"))
    wanted, pieces = [], []
    for number, parse in enumerate(parsers):
        rows = np.flatnonzero((chosen == number) & is_line)
        if len(rows):
            wanted.append(rows)
            pieces.append(call_parser(parse, lines.take(of_numpy(rows))))
    if not pieces:
        return pa.nulls(lines.num_rows, FIELDS)
    # From the order in which they were parsed back to the order of the rows.
    order = np.concatenate(wanted)
    positions = np.zeros(lines.num_rows, np.int64)
    positions[order] = np.arange(len(order))
    is_there = np.zeros(lines.num_rows, bool)
    is_there[order] = True
    return pa.concat_arrays(pieces).take(of_numpy(positions, is_there))


def call_parser(parse: Parser, lines: pa.RecordBatch) -> pa.MapArray:
    """One map for each row; null for all rows when the function fails."""
    try:
        parsed = parse(lines)
        names = list(parsed.schema.names)
        columns = [_as_text(parsed.column(place)) for place in range(len(names))]
        if parsed.num_rows != lines.num_rows:
            raise ValueError(f"{parsed.num_rows} rows for {lines.num_rows} lines")
        return _as_maps(names, columns, lines.num_rows)
    except Exception as failed:  # the user's code may raise anything; the query must continue
        log.warning("the parser %s failed: %s", parse, failed)
        return pa.nulls(lines.num_rows, FIELDS)


def _as_text(column: "pa.Array | pa.ChunkedArray") -> pa.StringArray:
    text = column.cast(pa.string())
    return text.combine_chunks() if isinstance(text, pa.ChunkedArray) else text


def _as_maps(names: list[str], columns: list[pa.StringArray], count: int) -> pa.MapArray:
    width = len(names)
    keys = of_texts(names).take(of_numpy(np.tile(np.arange(width), count)))
    # Row by row, as a map wants it, from column by column.
    order = np.arange(width * count).reshape(width, count).T.ravel()
    columns = columns or [of_texts([])]
    items = pa.concat_arrays(columns).take(of_numpy(order))
    offsets = of_numpy(np.arange(count + 1, dtype=np.int32) * np.int32(width))
    return pa.MapArray.from_arrays(offsets, keys, items)
