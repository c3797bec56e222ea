"""Files of records: JSON lines, as `consume -J` prints them, and Parquet.

A Parquet file has the columns topic, partition, offset, timestamp, key, value and headers; keys and
values are bytes.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, Protocol, Self

from millstream.cli.failure import CommandFailed, ExitCode
from millstream.cli.record_text import JsonRecord, TextRecord, from_json_line, to_json_line

_LINES: Final = (".jsonl", ".ndjson", ".json")
_PARQUET: Final = (".parquet",)
_READ_COLUMNS: Final = ("partition", "timestamp", "key", "value", "headers")
_ROWS_PER_GROUP: Final = 50_000


class RecordWriter(Protocol):
    def write(self, records: list[TextRecord]) -> None: ...


def open_writer(path: Path) -> "AbstractContextManager[RecordWriter]":
    """By the ending of the name. Raises CommandFailed."""
    return _ParquetWriter(path) if _is_parquet(path) else _LineWriter(path)


def read_record_file(path: Path) -> Iterator[JsonRecord]:
    """By the ending of the name. Raises CommandFailed."""
    return _read_parquet(path) if _is_parquet(path) else _read_lines(path)


def _is_parquet(path: Path) -> bool:
    if path.suffix in _PARQUET:
        return True
    if path.suffix in _LINES:
        return False
    known = ", ".join((*_LINES, *_PARQUET))
    raise CommandFailed(f"{path}: the name must end with one of {known}", exit_code=ExitCode.USAGE)


class _LineWriter:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    def __enter__(self) -> Self:
        self._file = self._path.open("wb")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._file is not None
        self._file.close()

    def write(self, records: list[TextRecord]) -> None:
        assert self._file is not None
        self._file.write(b"".join(to_json_line(record) for record in records))


class _ParquetWriter:
    def __init__(self, path: Path) -> None:
        self._arrow = _import_arrow()
        self._path = path
        self._waiting: list[TextRecord] = []
        self._writer: Any = None

    def __enter__(self) -> Self:
        from pyarrow import parquet

        self._writer = parquet.ParquetWriter(self._path, _schema(self._arrow), compression="zstd")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._write_waiting()
        self._writer.close()

    def write(self, records: list[TextRecord]) -> None:
        self._waiting += records
        if len(self._waiting) >= _ROWS_PER_GROUP:
            self._write_waiting()

    def _write_waiting(self) -> None:
        if not self._waiting:
            return
        rows = self._waiting
        columns = {
            "topic": [row.topic for row in rows],
            "partition": [row.partition for row in rows],
            "offset": [row.offset for row in rows],
            "timestamp": [row.timestamp_ms for row in rows],
            "key": [row.key for row in rows],
            "value": [row.value for row in rows],
            "headers": [[{"name": n, "value": v} for n, v in row.headers] for row in rows],
        }
        self._writer.write_table(self._arrow.table(columns, schema=_schema(self._arrow)))
        self._waiting = []


def _schema(arrow: Any) -> Any:
    header = arrow.struct([("name", arrow.string()), ("value", arrow.binary())])
    return arrow.schema(
        [
            ("topic", arrow.string()),
            ("partition", arrow.int32()),
            ("offset", arrow.int64()),
            ("timestamp", arrow.timestamp("ms", tz="UTC")),
            ("key", arrow.binary()),
            ("value", arrow.binary()),
            ("headers", arrow.list_(header)),
        ]
    )


def _import_arrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise CommandFailed("Parquet needs pyarrow: pip install 'millstream[spark]'") from None
    return pyarrow


def _read_lines(path: Path) -> Iterator[JsonRecord]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                yield from_json_line(line)
            except ValueError as wrong:
                raise CommandFailed(f"{path}, line {number}: {wrong}") from None


def _read_parquet(path: Path) -> Iterator[JsonRecord]:
    arrow = _import_arrow()
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(path)
        present = set(file.schema_arrow.names)
    except arrow.ArrowInvalid as wrong:
        raise CommandFailed(f"{path}: {wrong}") from None
    if "value" not in present:
        raise CommandFailed(f"{path} has no column value; it has {', '.join(sorted(present))}")
    names = [name for name in _READ_COLUMNS if name in present]
    for batch in file.iter_batches(columns=names):
        for row in _times_in_ms(arrow, batch).to_pylist():
            yield JsonRecord(
                key=_bytes(row.get("key")),
                value=_bytes(row["value"]),
                headers=[(each["name"], each["value"]) for each in row.get("headers") or []],
                timestamp_ms=row.get("timestamp"),
                partition=row.get("partition"),
            )


def _times_in_ms(arrow: Any, batch: Any) -> Any:
    """The batch with its timestamps as milliseconds since 1970, whatever unit the file has."""
    position = batch.schema.get_field_index("timestamp")
    if position < 0:
        return batch
    in_ms = batch.column(position).cast(arrow.timestamp("ms", tz="UTC"))
    return batch.set_column(position, "timestamp", in_ms.cast(arrow.int64()))


def _bytes(value: object) -> bytes | None:
    """Columns of other programs may be text, or numbers."""
    if value is None or isinstance(value, bytes):
        return value
    return str(value).encode()
