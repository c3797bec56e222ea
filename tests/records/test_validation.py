"""Which produced batches Kafka refuses, and with which code."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import KafkaCode, KafkaError
from millstream.model import Codec, TimestampType
from millstream.records.batch import CRC_START, HEADER_BYTES, TIMESTAMP_TYPE_MASK, BatchView
from millstream.records.builder import build_batch
from millstream.records.compression import compress
from millstream.records.records import Record
from millstream.records.validation import (
    HEAVY,
    LIGHT,
    BatchRules,
    RecordErrors,
    TooHeavy,
    check_in_order,
    check_produced,
    checked_batch,
)
from millstream.records.walking import COMPILED, PURE
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


def with_header_time(timestamp_ms: int, *, data: bytearray, attributes: int = 0) -> bytearray:
    data[CRC_START + 1] |= attributes
    return changed(35, timestamp_ms.to_bytes(8, "big", signed=True), data=data)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("said_ms", [2**63 - 1, NOW_MS + 50 * 60_000, NOW_MS - 1, -1])
def test_a_header_that_is_wrong_about_its_newest_record_is_corrected(
    said_ms: int, codec: Codec
) -> None:
    data = with_header_time(said_ms, data=batch(codec=codec))
    checked = BatchView(memoryview(data))
    check_produced(checked, make_batch_rules(), NOW_MS)
    assert data == batch(codec=codec)
    assert (checked.max_timestamp_ms, checked.crc_is_valid()) == (NOW_MS, True)


def test_a_batch_without_timestamps_says_so() -> None:
    data = with_header_time(2**63 - 1, data=batch(Record(0, -1, None, b"v")))
    assert is_accepted(data)
    assert BatchView(memoryview(data)).max_timestamp_ms == -1


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_the_timestamp_type_is_not_the_producers_to_choose(codec: Codec) -> None:
    data = with_header_time(NOW_MS + 5, data=batch(codec=codec), attributes=TIMESTAMP_TYPE_MASK)
    assert is_accepted(data)
    assert data == batch(codec=codec)


@pytest.mark.parametrize("said_ms", [2**63 - 1, NOW_MS + HOUR_MS + 1, -1])
def test_an_append_time_of_the_producer_is_held_against_the_limits(said_ms: int) -> None:
    data = with_header_time(said_ms, data=batch(), attributes=TIMESTAMP_TYPE_MASK)
    assert refusal(data).code is KafkaCode.INVALID_TIMESTAMP


def test_an_append_time_of_the_producer_is_refused_where_the_node_gives_it() -> None:
    rules = make_batch_rules(timestamp_type=TimestampType.LOG_APPEND_TIME)
    data = with_header_time(NOW_MS, data=batch(), attributes=TIMESTAMP_TYPE_MASK)
    assert refusal(data, rules).code is KafkaCode.INVALID_TIMESTAMP
    # What else the header says is overwritten.
    assert is_accepted(with_header_time(2**63 - 1, data=batch()), rules)


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
    data = _batch_of_packed(codec, packed)
    assert len(data) < 500_000
    rules = make_batch_rules()
    with pytest.raises(TooHeavy):
        check_produced(BatchView(memoryview(data)), rules, NOW_MS)
    with pytest.raises(KafkaError, match="records unpack to more than") as refused:
        check_produced(BatchView(memoryview(data)), rules, NOW_MS, decoded_bytes_max=HEAVY)
    assert refused.value.code is KafkaCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_what_takes_long_to_read_is_left_to_a_thread_however_little_comes_out(
    codec: Codec,
) -> None:
    data = BatchView(memoryview(_batch_of_packed(codec, bytes(LIGHT + 1))))
    with pytest.raises(TooHeavy):
        check_produced(data, make_batch_rules(message_bytes_max=10**7), NOW_MS)


def test_gzip_data_that_is_nothing_but_empty_blocks_is_not_read_to_its_end() -> None:
    empty_block = b"\0\0\0\xff\xff"
    packed = b"\x1f\x8b\x08" + bytes(7) + empty_block * 800_000
    data = BatchView(memoryview(_batch_of_packed(Codec.GZIP, packed)))
    rules = make_batch_rules(message_bytes_max=10**7)
    with pytest.raises(KafkaError, match="longer than what is in it") as refused:
        check_produced(data, rules, NOW_MS, decoded_bytes_max=HEAVY)
    assert refused.value.code is KafkaCode.INVALID_RECORD


def _batch_of_packed(codec: Codec, packed: bytes) -> bytearray:
    header = bytearray(batch()[:61])
    header[8:12] = (49 + len(packed)).to_bytes(4, "big")
    header[21:23] = int(codec).to_bytes(2, "big")
    data = header + packed
    sealed(data)
    return data


def test_a_batch_is_checked_again_under_other_rules() -> None:
    data = memoryview(batch())
    checked = checked_batch(data, make_batch_rules(), NOW_MS, decoded_bytes_max=LIGHT)
    check_produced(checked, make_batch_rules(), NOW_MS)
    with pytest.raises(KafkaError):
        check_produced(checked, make_batch_rules(message_bytes_max=10), NOW_MS)


def _passes_in_order(data: bytearray, rules: BatchRules) -> bool:
    """Without a correction."""
    content = bytearray(data)
    try:
        check_in_order(BatchView(memoryview(content)), rules, NOW_MS, LIGHT)
    except KafkaError:
        return False
    return content == data


@given(st.data())
def test_an_ordinary_batch_is_a_plain_one_that_passes_every_check(drawn: st.DataObject) -> None:
    some = drawn.draw
    times = st.sampled_from([NOW_MS, NOW_MS + 1, NOW_MS - 1, -1, 0])
    records = [
        Record(at, some(times), some(st.sampled_from([None, b"", b"k" * 70])), b"v" * 100)
        for at in range(some(st.integers(1, 3)))
    ]
    data = batch(*records, producer_id=some(st.sampled_from([-1, 0, 7])))
    whole = len(data)
    for _ in range(some(st.integers(0, 2))):
        at = some(st.integers(0, HEADER_BYTES + 20) | st.integers(0, whole - 1))
        data[at] = some(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
    data = data[: whole - some(st.sampled_from([0, 0, 0, 1, whole - HEADER_BYTES, whole]))]
    data += bytes(some(st.sampled_from([0, 0, 0, 1])))
    if len(data) >= HEADER_BYTES:
        sealed(data)
    rules = make_batch_rules(
        message_bytes_max=some(st.sampled_from([whole - 1, whole, 1 << 20])),
        is_key_required=some(st.booleans()),
        timestamp_before_max_ms=some(st.sampled_from([0, 1, 2**63 - 1])),
        timestamp_after_max_ms=some(st.sampled_from([0, HOUR_MS])),
    )
    expected = (
        len(data) >= HEADER_BYTES
        and BatchView(memoryview(data)).size_bytes == len(data)
        and not BatchView(memoryview(data)).attributes
        and _passes_in_order(data, rules)
    )
    for each in (PURE, COMPILED):
        if each is not None:
            found = each.is_ordinary(
                data,
                rules.message_bytes_max,
                NOW_MS - rules.timestamp_before_max_ms,
                NOW_MS + rules.timestamp_after_max_ms,
                needs_key=rules.is_key_required,
            )
            assert found == expected


def test_an_ordinary_batch_with_a_wrong_checksum_is_refused() -> None:
    data = batch(producer_id=7)
    data[-2] ^= 1
    assert PURE.is_ordinary(data, 1 << 20, 0, 2**63 - 1, needs_key=False)
    assert refusal(data).code is KafkaCode.CORRUPT_MESSAGE


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
