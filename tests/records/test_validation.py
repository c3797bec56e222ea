"""Which produced batches Kafka refuses, and with which code."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import KafkaCode, KafkaError
from millstream.model import Codec, TimestampType
from millstream.records.batch import CRC_START, BatchView
from millstream.records.builder import build_batch
from millstream.records.compression import compress
from millstream.records.records import Record
from millstream.records.validation import (
    HEAVY,
    LIGHT,
    BatchRules,
    RecordErrors,
    TooHeavy,
    check_produced,
    checked_batch,
)
from tests.storage.logs import make_batch_rules

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def batch(*records: Record, codec: Codec = Codec.NONE, producer_id: int = -1) -> bytearray:
    content = records or (Record(0, NOW_MS, b"k", b"v"), Record(1, NOW_MS, b"k", b"v"))
    return build_batch(
        content,
        base_offset=0,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
    )


def sealed(data: bytearray) -> bytearray:
    from crc32c import crc32c

    data[17:CRC_START] = crc32c(bytes(data[CRC_START:])).to_bytes(4, "big")
    return data


def changed(position: int, value: bytes, *, data: bytearray | None = None) -> bytearray:
    content = data or batch()
    content[position : position + len(value)] = value
    return sealed(content)


def refusal(data: bytearray, rules: BatchRules | None = None) -> KafkaError:
    with pytest.raises(KafkaError) as refused:
        check_produced(BatchView(memoryview(data)), rules or make_batch_rules(), NOW_MS)
    return refused.value


def is_accepted(data: bytearray, rules: BatchRules | None = None) -> bool:
    check_produced(BatchView(memoryview(data)), rules or make_batch_rules(), NOW_MS)
    return True


@pytest.mark.parametrize("codec", list(Codec))
def test_a_good_batch_is_accepted(codec: Codec) -> None:
    assert is_accepted(batch(codec=codec))
    assert is_accepted(batch(codec=codec, producer_id=4))


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_invalid_records(magic: int) -> None:
    assert refusal(changed(16, bytes([magic]))).code is KafkaCode.INVALID_RECORD


def test_an_unknown_magic_is_a_corrupt_message() -> None:
    assert refusal(changed(16, b"\x03")).code is KafkaCode.CORRUPT_MESSAGE


def test_a_wrong_checksum_is_a_corrupt_message() -> None:
    data = batch()
    data[-1] ^= 1
    assert refusal(data).code is KafkaCode.CORRUPT_MESSAGE


def test_a_batch_that_is_not_all_there_is_an_invalid_record() -> None:
    assert refusal(batch()[:-3]).code is KafkaCode.INVALID_RECORD


@pytest.mark.parametrize("length", [-1, 0, 48])
def test_an_impossible_length_is_a_corrupt_message(length: int) -> None:
    data = batch()
    data[8:12] = length.to_bytes(4, "big", signed=True)
    assert refusal(data).code is KafkaCode.CORRUPT_MESSAGE


def test_a_batch_above_max_message_bytes_is_too_large() -> None:
    data = batch()
    assert is_accepted(data, make_batch_rules(message_bytes_max=len(data)))
    refused = refusal(data, make_batch_rules(message_bytes_max=len(data) - 1))
    assert refused.code is KafkaCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(
    ("position", "value"),
    [
        (0, b"\0\0\0\0\0\0\0\1"),  # base offset is the broker's to give
        (57, b"\0\0\0\0"),  # no records
        (57, b"\xff\xff\xff\xff"),
        (57, b"\0\0\0\3"),  # count and last offset disagree
        (23, b"\0\0\0\0"),
        (23, b"\xff\xff\xff\xff"),
        (21, b"\0\x20"),  # control bit
        (21, b"\0\x10"),  # transactional without a producer id
    ],
)
def test_headers_that_contradict_themselves_are_invalid_records(
    position: int, value: bytes
) -> None:
    rules = make_batch_rules(is_transactional_allowed=True)
    assert refusal(changed(position, value), rules).code is KafkaCode.INVALID_RECORD


def test_a_transactional_batch_needs_a_request_with_a_transaction() -> None:
    data = changed(21, b"\0\x10", data=batch(producer_id=7))
    assert is_accepted(data, make_batch_rules(is_transactional_allowed=True))
    assert refusal(data).code is KafkaCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@pytest.mark.parametrize("position", [51, 53])
def test_a_producer_id_needs_an_epoch_and_a_sequence(position: int) -> None:
    data = changed(position, b"\xff\xff", data=batch(producer_id=4))
    assert refusal(data).code is KafkaCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs_are_unsupported(codec: int) -> None:
    code = refusal(changed(21, bytes([0, codec]))).code
    assert code is KafkaCode.UNSUPPORTED_COMPRESSION_TYPE


def test_zstd_is_refused_where_the_request_is_too_old_for_it() -> None:
    rules = make_batch_rules(is_zstd_allowed=False)
    assert refusal(batch(codec=Codec.ZSTD), rules).code is KafkaCode.UNSUPPORTED_COMPRESSION_TYPE
    assert is_accepted(batch(codec=Codec.LZ4), rules)


def test_each_record_too_far_ahead_is_named() -> None:
    late = NOW_MS + HOUR_MS + 1
    data = batch(
        Record(0, NOW_MS, None, b"v"), Record(1, late, None, b"v"), Record(2, NOW_MS, None, b"v")
    )
    refused = refusal(data)
    assert isinstance(refused, RecordErrors)
    assert refused.code is KafkaCode.INVALID_TIMESTAMP
    assert [index for index, _ in refused.record_errors] == [1]
    assert is_accepted(data, make_batch_rules(timestamp_after_max_ms=HOUR_MS + 1))


def test_each_record_too_far_back_is_named() -> None:
    data = batch(Record(0, NOW_MS, None, b"v"), Record(1, NOW_MS - 1001, None, b"v"))
    refused = refusal(data, make_batch_rules(timestamp_before_max_ms=1000))
    assert isinstance(refused, RecordErrors)
    assert refused.code is KafkaCode.INVALID_TIMESTAMP
    assert [index for index, _ in refused.record_errors] == [1]
    assert is_accepted(data)


def test_timestamps_of_the_producer_do_not_matter_under_append_time() -> None:
    rules = make_batch_rules(
        timestamp_type=TimestampType.LOG_APPEND_TIME, timestamp_before_max_ms=1000
    )
    assert is_accepted(batch(Record(0, 2**62, None, b"v")), rules)
    assert is_accepted(batch(Record(0, 0, None, b"v")), rules)


@pytest.mark.parametrize("codec", list(Codec))
def test_a_compacted_topic_names_the_records_without_a_key(codec: Codec) -> None:
    data = batch(
        Record(0, NOW_MS, b"k", b"v"),
        Record(1, NOW_MS, None, b"v"),
        Record(2, NOW_MS, None, b"v"),
        codec=codec,
    )
    refused = refusal(data, make_batch_rules(is_key_required=True))
    assert isinstance(refused, RecordErrors)
    assert refused.code is KafkaCode.INVALID_RECORD
    assert [index for index, _ in refused.record_errors] == [1, 2]
    assert is_accepted(data)


def test_unreadable_records_are_refused() -> None:
    data = changed(61, b"\x7f")
    assert refusal(data, make_batch_rules(is_key_required=True)).code is KafkaCode.INVALID_RECORD
    assert refusal(data).code is KafkaCode.INVALID_RECORD


@pytest.mark.parametrize(
    ("codec", "packed"),
    [
        (Codec.ZSTD, compress(Codec.ZSTD, bytes(HEAVY + 1))),
        # Each takes microseconds, on whichever thread.
        (Codec.GZIP, compress(Codec.GZIP, b"") * 20_000),
        (Codec.SNAPPY, compress(Codec.SNAPPY, b"a") + b"\0\0\0\3\1\0a" * 20_000),
    ],
)
def test_a_bomb_is_left_to_a_thread_and_then_refused(codec: Codec, packed: bytes) -> None:
    header = bytearray(batch()[:61])
    header[8:12] = (49 + len(packed)).to_bytes(4, "big")
    header[21:23] = int(codec).to_bytes(2, "big")
    data = header + packed
    sealed(data)
    assert len(data) < 500_000
    rules = make_batch_rules()
    with pytest.raises(TooHeavy):
        check_produced(BatchView(memoryview(data)), rules, NOW_MS)
    with pytest.raises(KafkaError, match="records unpack to more than") as refused:
        check_produced(BatchView(memoryview(data)), rules, NOW_MS, decoded_bytes_max=HEAVY)
    assert refused.value.code is KafkaCode.INVALID_RECORD


def test_a_batch_is_checked_again_under_other_rules() -> None:
    data = memoryview(batch())
    checked = checked_batch(data, make_batch_rules(), NOW_MS, decoded_bytes_max=LIGHT)
    check_produced(checked, make_batch_rules(), NOW_MS)
    with pytest.raises(KafkaError):
        check_produced(checked, make_batch_rules(message_bytes_max=10), NOW_MS)


@given(st.integers(0, 60), st.integers(0, 255), st.booleans())
def test_no_header_crashes_the_check(position: int, value: int, is_key_required: bool) -> None:
    data = batch()
    data[position] = value
    if position >= CRC_START:
        sealed(data)
    rules = make_batch_rules(is_key_required=is_key_required)
    code = KafkaCode.NONE
    try:
        check_produced(BatchView(memoryview(data)), rules, NOW_MS)
    except KafkaError as error:
        code = error.code
    is_unchanged = data == batch()
    assert not is_unchanged or code is KafkaCode.NONE
