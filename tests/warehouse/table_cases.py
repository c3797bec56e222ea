"""Tables for tests: small batches of lines, in any of the formats."""

import pyarrow as pa

from millstream.warehouse.files import Batch, WrittenFile, write_files
from millstream.warehouse.locations import Location
from millstream.warehouse.tables import DELTA, commit_files, find_table, open_table

SCHEMA = pa.schema(
    [("line", pa.string()), ("at", pa.timestamp("us", tz="UTC")), ("date", pa.string())]
)
DAY = "2026-09-21"


def write_table_rows(
    path: Location, rows: list[dict[str, object]], schema: pa.Schema, table_format: str
) -> list[WrittenFile]:
    return write_files(
        [pa.RecordBatch.from_pylist(rows, schema=schema)],
        path,
        name="batch",
        has_day_inside=table_format != DELTA,
    )


def write(
    path: Location, lines: list[str], table_format: str, *, day: str = DAY
) -> list[WrittenFile]:
    rows: list[dict[str, object]] = [{"line": line, "at": 0, "date": day} for line in lines]
    return write_table_rows(path, rows, SCHEMA, table_format)


def append(
    path: Location, batch: Batch, lines: list[str], table_format: str, *, day: str = DAY
) -> bool:
    files = write(path, lines, table_format, day=day)
    return commit_files(open_table(path, SCHEMA, table_format), batch, files)


def lines_of(path: Location) -> list[str]:
    table = find_table(path)
    assert table is not None
    return sorted(table.dataset().to_table()["line"].to_pylist())
