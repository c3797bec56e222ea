"""Rows into records, in Python: the same results as the compiled `_rows`, slower."""

from array import array
from typing import Final

from millstream.records.builder import write_varint
from millstream.records.row_columns import HeadersColumn, Numbers, StringColumn

NAME: Final = "pure Python"
_NULL: Final = b"\x01"


class RowEncoder:
    def __init__(
        self,
        keys: StringColumn | None,
        values: StringColumn,
        headers: HeadersColumn | None,
    ) -> None:
        self._keys = keys
        self._values = values
        self._headers = headers

    def partitions(self, count: int, partition_count: int) -> bytes:
        found = array("i")
        for row in range(count):
            key = None if self._keys is None else _string(self._keys, row)
            found.append(-1 if key is None else (_murmur2(key) & 0x7FFFFFFF) % partition_count)
        return found.tobytes()

    def encode(self, rows: Numbers, start: int, bytes_max: int) -> tuple[bytes, int]:
        encoded = bytearray()
        for index in range(start, len(rows)):
            record = self._record(rows[index], index - start)
            if index > start and len(encoded) + len(record) > bytes_max:
                return bytes(encoded), index
            encoded += record
        return bytes(encoded), len(rows)

    def _record(self, row: int, offset_delta: int) -> bytes:
        body = bytearray(b"\0\0")
        write_varint(body, offset_delta)
        _write_string(body, None if self._keys is None else _string(self._keys, row))
        _write_string(body, _string(self._values, row))
        self._write_headers(body, row)
        framed = bytearray()
        write_varint(framed, len(body))
        return bytes(framed + body)

    def _write_headers(self, body: bytearray, row: int) -> None:
        headers = self._headers
        if headers is None or not _is_valid(headers.validity, headers.first + row):
            body.append(0)
            return
        start, end = headers.ends[headers.first + row], headers.ends[headers.first + row + 1]
        write_varint(body, end - start)
        for index in range(start, end):
            _write_string(body, _string(headers.names, index) or b"")
            _write_string(body, _string(headers.values, index))


def _is_valid(validity: bytes | bytearray | memoryview | None, index: int) -> bool:
    return validity is None or bool(validity[index // 8] >> (index % 8) & 1)


def grouped(
    rows: Numbers, numbers: Numbers, group_count: int
) -> tuple[bytes, list[tuple[int, int]]]:
    if len(numbers) != len(rows) or group_count <= 0:
        raise ValueError("a number for each row, and at least one group")
    groups: dict[int, array[int]] = {}
    for row, number in zip(rows, numbers, strict=True):
        if not 0 <= number < group_count:
            raise ValueError(f"there is no group {number}")
        groups.setdefault(number, array("q")).append(row)
    ordered = sorted(groups.items())
    return b"".join(group.tobytes() for _, group in ordered), [(n, len(g)) for n, g in ordered]


def _string(column: StringColumn, row: int) -> bytes | None:
    index = column.first + row
    if not _is_valid(column.validity, index):
        return None
    return bytes(column.data[column.ends[index] : column.ends[index + 1]])


def _write_string(target: bytearray, data: bytes | None) -> None:
    if data is None:
        target += _NULL
    else:
        write_varint(target, len(data))
        target += data


def _murmur2(data: bytes) -> int:
    """The 32-bit hash of Kafka's own partitioner."""
    multiplier, mask = 0x5BD1E995, 0xFFFFFFFF
    value = 0x9747B28C ^ len(data)
    whole = len(data) & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * multiplier & mask
        word = (word ^ word >> 24) * multiplier & mask
        value = value * multiplier & mask ^ word
    if len(data) > whole:
        value = (value ^ int.from_bytes(data[whole:], "little")) * multiplier & mask
    value = (value ^ value >> 13) * multiplier & mask
    return value ^ value >> 15
