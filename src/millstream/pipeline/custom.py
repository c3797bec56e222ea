"""A parser of the user's own: Arrow in, Arrow out, a batch of lines at a time.

The function gets a RecordBatch with the columns `source`, `line` and `record_time`, and
returns a RecordBatch or Table with as many rows: columns of any names, as text or numbers,
that mean what the fields of a JSON line mean (`ts`, `service`, `status`, ...). A row without
`ts` is a dead letter. A function that raises makes dead letters of its batch, not an end.
"""

import importlib
import logging
import re
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from millstream.pipeline.globs import glob_pattern
from millstream.pipeline.spec import SourceRule

log = logging.getLogger(__name__)

Parser = Callable[[pa.RecordBatch], "pa.RecordBatch | pa.Table"]
_FIELDS = pa.map_(pa.string(), pa.string())


def parse_custom(lines: DataFrame, rules: tuple[SourceRule, ...]) -> DataFrame:
    """Adds `fields` for the lines whose source a rule gives to a function."""
    schema = lines.schema.simpleString().removeprefix("struct<").removesuffix(">")
    given = tuple(rule for rule in rules if rule.format != "auto" or rule.function)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Rules are tried in order, as for formats: the first that matches decides.
        parsers = [(rule, load_parser(rule.function) if rule.function else None) for rule in given]
        for batch in batches:
            fields = _batch_fields(batch, parsers)
            yield pa.RecordBatch.from_arrays(
                [*batch.columns, fields], [*batch.schema.names, "fields"]
            )

    return lines.mapInArrow(run, f"{_ddl(schema)},fields map<string,string>")


def _ddl(schema: str) -> str:
    return ",".join(part.replace(":", " ", 1) for part in re.split(r",(?![^<(]*[>)])", schema))


def load_parser(name: str) -> Parser:
    module, _, function = name.partition(":")
    found: Parser = getattr(importlib.import_module(module), function)
    return found


def _batch_fields(
    batch: pa.RecordBatch, parsers: list[tuple[SourceRule, Parser | None]]
) -> pa.Array:
    sources = batch.column("source")
    is_open = pc.is_valid(batch.column("line"))
    wanted, pieces = [], []
    for rule, parse in parsers:
        is_match = pc.and_(pc.match_substring_regex(sources, glob_pattern(rule.match)), is_open)
        is_open = pc.and_not(is_open, is_match)
        rows = pc.indices_nonzero(is_match)
        if parse is not None and len(rows):
            wanted.append(rows)
            pieces.append(call_parser(parse, batch.take(rows)))
    if not pieces:
        return pa.nulls(batch.num_rows, _FIELDS)
    found = pa.concat_arrays(pieces)
    # From the order in which they were parsed back to the order of the rows.
    order = pa.concat_arrays([each.cast(pa.int64()) for each in wanted])
    positions = pc.index_in(pa.array(np.arange(batch.num_rows)), value_set=order)
    return found.take(positions)


def call_parser(parse: Parser, lines: pa.RecordBatch) -> pa.Array:
    """One map for each row; null for a row that the function could not read."""
    try:
        parsed = parse(lines.select(["source", "line", "record_time"]))
        columns = [_as_text(parsed.column(name)) for name in parsed.schema.names]
        names = list(parsed.schema.names)
        if parsed.num_rows != lines.num_rows:
            raise ValueError(f"{parsed.num_rows} rows for {lines.num_rows} lines")
    except Exception as failed:  # the user's code may raise anything; the query must go on
        log.warning("the parser %s failed: %s", parse, failed)
        return pa.nulls(lines.num_rows, _FIELDS)
    return _as_maps(names, columns, lines.num_rows)


def _as_text(column: "pa.Array | pa.ChunkedArray") -> pa.Array:
    text = column.cast(pa.string())
    return text.combine_chunks() if isinstance(text, pa.ChunkedArray) else text


def _as_maps(names: list[str], columns: list[pa.Array], count: int) -> pa.Array:
    width = len(names)
    keys = pa.array(names, pa.string()).take(pa.array(np.tile(np.arange(width), count)))
    # Row by row, as a map wants it, from column by column.
    order = np.arange(width * count).reshape(width, count).T.ravel()
    items = pa.concat_arrays(columns).take(pa.array(order))
    offsets = pa.array(np.arange(0, width * count + 1, width, dtype=np.int32))
    return pa.MapArray.from_arrays(offsets, keys, items)
