"""The batch header, read and restamped in place."""

import pytest

from millstream.model import Codec, TimestampType
from millstream.records.batch import HEADER_BYTES, BatchView, split_batches
from millstream.records.builder import build_batch
from millstream.records.records import Record


def three_records() -> bytearray:
    return build_batch(
        [Record(index, 1000 + index, None, b"v") for index in range(3)],
        base_offset=0,
        codec=Codec.LZ4,
        producer_id=7,
        producer_epoch=1,
        base_sequence=2**31 - 2,
    )


def test_a_header_is_read_field_by_field() -> None:
    batch = BatchView(memoryview(three_records()))
    assert (batch.base_offset, batch.last_offset, batch.next_offset) == (0, 2, 3)
    assert (batch.base_timestamp_ms, batch.max_timestamp_ms) == (1000, 1002)
    assert (batch.producer_id, batch.producer_epoch) == (7, 1)
    assert batch.codec is Codec.LZ4
    assert batch.timestamp_type is TimestampType.CREATE_TIME
    assert not batch.is_transactional
    assert not batch.is_control


def test_the_last_sequence_wraps_to_zero() -> None:
    assert BatchView(memoryview(three_records())).last_sequence == 0


def test_a_new_place_in_the_log_needs_no_new_checksum() -> None:
    data = three_records()
    BatchView(memoryview(data)).stamped(2**40, 9)
    again = BatchView(memoryview(data))
    assert (again.base_offset, again.partition_leader_epoch) == (2**40, 9)
    assert again.size_bytes == len(data)
    assert again.crc_is_valid()


def test_append_time_is_stamped_with_a_new_checksum() -> None:
    data = three_records()
    BatchView(memoryview(data)).stamp_append_time(5555)
    again = BatchView(memoryview(data))
    assert again.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert again.max_timestamp_ms == 5555
    assert again.crc_is_valid()


def test_any_changed_byte_after_the_checksum_is_noticed() -> None:
    data = three_records()
    for position in range(17, len(data)):
        data[position] ^= 1
        assert not BatchView(memoryview(data)).crc_is_valid()
        data[position] ^= 1


def test_batches_are_split_where_their_lengths_say() -> None:
    data = three_records()
    assert len(list(split_batches(memoryview(data + data)))) == 2
    for broken in (data[:-1], data[:60], data + b"x"):
        with pytest.raises(ValueError):
            list(split_batches(memoryview(broken)))


def test_the_codec_is_one_of_five() -> None:
    data = bytearray(HEADER_BYTES)
    for number in range(8):
        data[22] = 0xF8 | number
        batch = BatchView(memoryview(data))
        if number < len(Codec):
            assert batch.codec is Codec(number)
        else:
            with pytest.raises(ValueError, match=f"{number} is not a valid Codec"):
                _ = batch.codec
