"""Record batches as plain buffers, and the loops over records that compaction needs.

The buffers are laid out as Arrow lays out `int64`, `binary` and
`list<struct<string, binary>>` columns, so that callers with pyarrow wrap them without a
copy. Nothing here knows Arrow.

The loops exist twice: compiled, and in Python for installs without a C compiler. Both give
the same bytes. `IMPLEMENTATION` is the one in use; `PURE` is always there.
"""

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import TYPE_CHECKING, Final, Protocol, cast

from millstream.lazy_dataclass import dataclass
from millstream.model import Codec
from millstream.records import _columns_pure
from millstream.records.batch import HEADER_BYTES, BatchView, split_batches
from millstream.records.compression import decompress
from millstream.records.rewriting import Filtered
from millstream.records.validation import DECODED_BYTES_MAX

Bytes = bytes | bytearray | memoryview
INT64_MAX: Final = 2**63 - 1


class Stop(IntEnum):
    """Why a loop over batches came to its end."""

    # No whole batch is left.
    END = 0
    # Compressed, transactional or control: for the caller to decide.
    SPECIAL = 1
    # No room for another key.
    FULL = 2
    DAMAGED = 3


class KeyMap(Protocol):
    """The newest offset of each key."""

    latest_offset: int

    @property
    def capacity(self) -> int: ...
    @property
    def count(self) -> int: ...
    def offset_of(self, key: bytes) -> int: ...
    def add_batches(self, data: Bytes, position: int, from_offset: int) -> tuple[int, int]: ...
    def add_records(
        self, records: Bytes, base_offset: int, last_delta: int, count: int, from_offset: int
    ) -> int: ...


class Rewriter(Protocol):
    """Batches without the records that a `KeyMap` knows newer ones of."""

    @property
    def position(self) -> int: ...
    @property
    def max_timestamp_ms(self) -> int: ...
    @property
    def max_timestamp_offset(self) -> int: ...
    @property
    def records_read(self) -> int: ...
    @property
    def records_kept(self) -> int: ...
    @property
    def batches_kept(self) -> int: ...
    def rewrite_batches(self, data: Bytes, position: int, is_end: bool) -> tuple[int, int]: ...
    def filter_records(
        self, header_bytes: Bytes, records: Bytes, is_kept_whole: bool, is_horizon_due: bool
    ) -> Filtered | None: ...
    def write(self, batch: Bytes) -> None: ...
    def take_bytes(self) -> bytes: ...
    def take_marks(self) -> bytes: ...


class ColumnsBuilder(Protocol):
    @property
    def count(self) -> int: ...
    def add(
        self, header_bytes: Bytes, records: Bytes, from_offset: int, upto_offset: int
    ) -> None: ...
    def take(self) -> tuple[bytes, ...]:
        """The buffers of `Columns`; the builder is empty then, and can be used again."""
        ...


_KeyMap = KeyMap
_Rewriter = Rewriter
_ColumnsBuilder = ColumnsBuilder


class Implementation(Protocol):
    """One of the two modules."""

    NAME: str
    # Memory that a key costs in a `KeyMap`.
    ENTRY_BYTES: int

    def KeyMap(self, capacity: int, load_factor: float = 0.9) -> _KeyMap: ...
    def Rewriter(
        self,
        keys: _KeyMap,
        kept_offsets: Iterable[int],
        now_ms: int,
        delete_retention_ms: int,
        interval_bytes: int,
    ) -> _Rewriter: ...
    def ColumnsBuilder(self) -> _ColumnsBuilder: ...


PURE: Final = cast(Implementation, _columns_pure)


def _compiled() -> Implementation | None:
    if not TYPE_CHECKING:
        try:
            from millstream.records import _columns
        except ImportError:
            return None
    else:
        from millstream.records import _columns
    return cast(Implementation, _columns)


COMPILED: Final = _compiled()
IMPLEMENTATION: Final = COMPILED or PURE


@dataclass(frozen=True, slots=True)
class Columns:
    """Records as Arrow lays them out; all numbers are in the byte order of the machine.

    `*_ends` are Arrow's offsets, int32 and one more than there are entries; `*_validity`
    has a bit per entry, lowest first, that is 0 for null. Header names are never null.
    """

    count: int
    # int64 each.
    offsets: bytes
    timestamps_ms: bytes
    key_validity: bytes
    key_ends: bytes
    key_data: bytes
    value_validity: bytes
    value_ends: bytes
    value_data: bytes
    # Which headers belong to which record.
    header_ends: bytes
    header_name_ends: bytes
    header_name_data: bytes
    header_value_validity: bytes
    header_value_ends: bytes
    header_value_data: bytes


def decode(
    batches: Bytes,
    *,
    from_offset: int = 0,
    upto_offset: int = INT64_MAX,
    is_skipped: Callable[[BatchView], bool] | None = None,
    implementation: Implementation = IMPLEMENTATION,
) -> Columns:
    """The records of whole batches that lie back to back, with offsets in the given range.

    Control batches are left out, and those that `is_skipped` names (aborted
    transactions). Raises ValueError where the bytes do not add up.
    """
    builder = implementation.ColumnsBuilder()
    for batch in split_batches(memoryview(batches)):
        if batch.is_control or batch.last_offset < from_offset:
            continue
        if batch.base_offset >= upto_offset:
            break
        if is_skipped is not None and is_skipped(batch):
            continue
        if not batch.crc_is_valid():
            raise ValueError(f"checksum of the batch at offset {batch.base_offset} is wrong")
        header = batch.buffer[:HEADER_BYTES]
        builder.add(header, unpacked_records(batch), from_offset, upto_offset)
    return Columns(builder.count, *builder.take())


def is_readable(batch: BatchView, *, implementation: Implementation = IMPLEMENTATION) -> bool:
    """Whether the records add up. Earlier versions stored whatever had the right checksum."""
    builder = implementation.ColumnsBuilder()
    try:
        builder.add(batch.buffer[:HEADER_BYTES], unpacked_records(batch), 0, INT64_MAX)
    except ValueError:
        return False
    return True


def unpacked_records(batch: BatchView) -> Bytes:
    """The records without their codec; ValueError when they cannot be unpacked."""
    if batch.codec is Codec.NONE:
        return batch.records
    return decompress(batch.codec, batch.records, limit_bytes=DECODED_BYTES_MAX)
