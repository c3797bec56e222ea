"""What the compiled module offers: the same as `_walk_pure`."""

from millstream.records._walk_pure import Found

NAME: str

def is_ordinary(
    data: bytes | bytearray | memoryview,
    bytes_max: int,
    earliest: int,
    latest: int,
    needs_key: bool,
) -> bool: ...
def walk_records(
    data: bytes | bytearray | memoryview,
    start: int,
    stop: int,
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    earliest: int,
    latest: int,
    needs_key: bool,
) -> Found | None: ...
def find_time(
    data: bytes | bytearray | memoryview,
    start: int,
    stop: int,
    count: int,
    base_timestamp: int,
    wanted: int,
    delta_min: int,
) -> tuple[int, int, int]: ...
def find_delivery_times(
    data: bytes | bytearray | memoryview, count: int, not_before: bytes, not_after: bytes
) -> tuple[bytes, int, int]: ...
