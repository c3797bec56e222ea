"""What the compiled module offers: the same as `_rows_pure`."""

from millstream.records.row_columns import HeadersColumn, Numbers, StringColumn

NAME: str

class RowEncoder:
    def __init__(
        self, keys: StringColumn | None, values: StringColumn, headers: HeadersColumn | None
    ) -> None: ...
    def partitions(self, count: int, partition_count: int) -> bytes: ...
    def encode(self, rows: Numbers, start: int, bytes_max: int) -> tuple[bytes, int]: ...

def grouped(
    rows: Numbers, numbers: Numbers, group_count: int
) -> tuple[bytes, list[tuple[int, int]]]: ...
