"""What the compiled module offers: the same as `_columns_pure`."""

from collections.abc import Iterable

Bytes = bytes | bytearray | memoryview

NAME: str
ENTRY_BYTES: int

class KeyMap:
    capacity: int
    count: int
    latest_offset: int
    def __init__(
        self, capacity: int, load_factor: float = 0.9, secret: bytes | None = None
    ) -> None: ...
    def hash_of(self, key: bytes) -> bytes: ...
    def offset_of(self, key: bytes) -> int: ...
    def add_batches(self, data: Bytes, position: int, from_offset: int) -> tuple[int, int]: ...
    def add_records(
        self, records: Bytes, base_offset: int, last_delta: int, count: int, from_offset: int
    ) -> int: ...

class Rewriter:
    position: int
    max_timestamp_ms: int
    max_timestamp_offset: int
    records_read: int
    records_kept: int
    batches_kept: int
    def __init__(
        self,
        keys: KeyMap,
        kept_offsets: Iterable[int],
        now_ms: int,
        delete_retention_ms: int,
        interval_bytes: int,
    ) -> None: ...
    def rewrite_batches(self, data: Bytes, position: int, is_end: bool) -> tuple[int, int]: ...
    def filter_records(
        self, header_bytes: Bytes, records: Bytes, is_kept_whole: bool, is_horizon_due: bool
    ) -> tuple[int, bytes, int, int, int] | None: ...
    def write(self, batch: Bytes) -> None: ...
    def take_bytes(self) -> bytes: ...
    def take_marks(self) -> bytes: ...

class ColumnsBuilder:
    count: int
    def add(
        self, header_bytes: Bytes, records: Bytes, from_offset: int, upto_offset: int
    ) -> None: ...
    def take(self) -> tuple[bytes, ...]: ...

def checksum(data: Bytes) -> tuple[int, int]: ...
