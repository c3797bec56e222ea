"""What the compiled module offers: the same as `_walk_pure`."""

from millstream.records._walk_pure import Found

NAME: str

def walk_records(
    data: bytes | bytearray | memoryview,
    start: int,
    stop: int,
    count: int,
    base_timestamp: int,
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
