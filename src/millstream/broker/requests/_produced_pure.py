"""The batches of a repeated produce: the twin of `_produced.pyx`, value for value."""

from typing import Final

from millstream.records.batch import HEADER_BYTES, BatchView
from millstream.records.walking import PURE
from millstream.wire.repeated import partitions_of

NAME: Final = "pure Python"
# What a record without a timestamp has.
_NO_TIMESTAMP: Final = -1

# Index, batch, and whether nothing is wrong with it.
Found = tuple[int, memoryview, bool]


def batches_of(frame: memoryview, before: bytes) -> list[Found] | None:
    found = partitions_of(frame, before)
    if found is None:
        return None
    return [(index, data, _is_whole(data)) for index, data in found]


def _is_whole(data: memoryview) -> bool:
    if len(data) < HEADER_BYTES:
        return False
    batch = BatchView(data)
    latest_ms = batch.max_timestamp_ms
    return (
        latest_ms >= _NO_TIMESTAMP
        and PURE.is_ordinary(data, len(data), _NO_TIMESTAMP, latest_ms, False)
        and batch.crc_is_valid()
    )
