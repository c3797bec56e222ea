import itertools

import pytest

from millstream.model import Codec
from millstream.records.batch import HEADER_BYTES, BatchView
from millstream.records.builder import build_batch
from millstream.records.records import Record
from millstream.storage.inspection.batch_layout import RECORDS_MAX, batch_fields

RECORDS = [
    Record(7, 1000, b"key", b"value", [("h", b"1")]),
    Record(8, 1005, None, None),
]


def view(data: bytearray) -> BatchView:
    return BatchView(memoryview(data))


def test_fields_cover_every_byte_once_and_in_order() -> None:
    batch = view(build_batch(RECORDS, base_offset=7))
    fields = batch_fields(batch)
    assert fields[0].start == 0
    assert fields[-1].end == batch.size_bytes
    for before, after in itertools.pairwise(fields):
        assert before.end == after.start
    values = {field.name: field.value for field in fields}
    assert values["baseOffset"] == "7"
    assert values["recordCount"] == "2"
    assert values["record 1 timestampDelta"] == "+5"
    assert values["record 1 value length"] == "null"
    assert values["record 0 value"] == "5 bytes"


def test_a_wrong_checksum_is_said() -> None:
    data = build_batch(RECORDS, base_offset=0)
    [right] = [each for each in batch_fields(view(data)) if each.name == "crc"]
    assert right.meaning == "right"
    data[-1] ^= 1
    [wrong] = [each for each in batch_fields(view(data)) if each.name == "crc"]
    assert "WRONG" in wrong.meaning


def test_compressed_records_are_one_field() -> None:
    batch = view(build_batch(RECORDS, base_offset=0, codec=Codec.GZIP))
    fields = batch_fields(batch)
    assert (fields[-1].start, fields[-1].end) == (HEADER_BYTES, batch.size_bytes)
    [attributes] = [each for each in fields if each.name == "attributes"]
    assert attributes.meaning == "gzip, CreateTime"


def test_only_the_first_records_are_listed() -> None:
    many = [Record(number, 0, None, b"") for number in range(100)]
    fields = batch_fields(view(build_batch(many, base_offset=0)))
    assert sum(each.name.endswith(" length") and each.meaning == "varint" for each in fields) == (
        RECORDS_MAX
    )


def test_damaged_records_are_an_error() -> None:
    data = build_batch(RECORDS, base_offset=0)
    data[HEADER_BYTES] = 0x7E
    with pytest.raises(ValueError, match="does not fit"):
        batch_fields(view(data))
