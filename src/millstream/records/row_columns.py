"""Columns of rows, as Arrow lays them out; `rows` makes batches of them."""

from dataclasses import dataclass

# One byte each, and 32-bit integers of the machine's byte order.
Bytes = bytes | bytearray | memoryview
Numbers = memoryview


@dataclass(frozen=True, slots=True)
class StringColumn:
    """Byte strings; without `validity` none is null."""

    validity: Bytes | None
    ends: Numbers
    data: Bytes
    first: int


@dataclass(frozen=True, slots=True)
class HeadersColumn:
    """A list of names and values for each row; a null list is an empty one."""

    validity: Bytes | None
    ends: Numbers
    first: int
    names: StringColumn
    values: StringColumn
