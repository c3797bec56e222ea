"""Batches as Kafka's own producer writes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model import Codec, TimestampType
from millstream.records.batch import BatchView
from millstream.records.builder import build_batch, build_key_values, recompress
from millstream.records.records import Record, read_records


def test_the_reference_encoder_of_another_client_agrees() -> None:
    from kafka.record.default_records import DefaultRecordBatchBuilder

    other = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=False,
        producer_id=4,
        producer_epoch=2,
        base_sequence=9,
        batch_size=100_000,
    )
    records = [
        Record(0, 5000, None, b"first", []),
        Record(1, 4000, b"key", None, [("name", b"value"), ("null", None)]),
        Record(2, 9000, b"", b"v" * 300, []),
    ]
    for record in records:
        other.append(
            record.offset,
            timestamp=record.timestamp_ms,
            key=record.key,
            value=record.value,
            headers=record.headers,
        )
    expected = bytearray(other.build())
    ours = build_batch(records, base_offset=0, producer_id=4, producer_epoch=2, base_sequence=9)
    # The leader epoch is the broker's to fill in; the two start from different values.
    assert ours[:12] + ours[16:] == expected[:12] + expected[16:]


def test_offsets_may_have_gaps_as_compaction_leaves_them() -> None:
    records = [Record(5, 1, b"a", b"1"), Record(9, 2, b"b", b"2")]
    batch = BatchView(memoryview(build_batch(records, base_offset=3)))
    assert (batch.base_offset, batch.last_offset, batch.record_count) == (3, 9, 2)
    assert read_records(batch, limit_bytes=1000) == records


def test_flags_end_up_in_the_attributes() -> None:
    batch = BatchView(
        memoryview(
            build_batch(
                [Record(0, 1, None, None)],
                base_offset=0,
                codec=Codec.ZSTD,
                timestamp_type=TimestampType.LOG_APPEND_TIME,
                is_transactional=True,
                is_control=True,
                leader_epoch=3,
            )
        )
    )
    assert batch.codec is Codec.ZSTD
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert batch.is_transactional
    assert batch.is_control
    assert batch.partition_leader_epoch == 3


@pytest.mark.parametrize("codec", list(Codec))
def test_recompression_changes_the_codec_and_nothing_else(codec: Codec) -> None:
    records = [Record(index, 100 + index, b"k", b"v" * index, [("h", None)]) for index in range(9)]
    before = BatchView(
        memoryview(
            build_batch(
                records,
                base_offset=0,
                codec=Codec.GZIP,
                producer_id=8,
                producer_epoch=1,
                base_sequence=4,
                is_transactional=True,
            )
        )
    )
    after = BatchView(memoryview(recompress(before, codec, limit_bytes=10_000)))
    assert after.crc_is_valid()
    assert after.codec is codec
    assert read_records(after, limit_bytes=10_000) == records
    for field in ("producer_id", "producer_epoch", "base_sequence", "max_timestamp_ms"):
        assert getattr(after, field) == getattr(before, field)
    assert after.is_transactional


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(ValueError):
        build_batch([], base_offset=0)


@given(
    pairs=st.lists(
        st.tuples(st.binary(max_size=2_000), st.none() | st.binary(max_size=2_000)),
        min_size=1,
        max_size=5,
    ),
    timestamp_ms=st.integers(0, 1 << 45),
    is_transactional=st.booleans(),
)
def test_keys_and_values_become_the_batch_that_their_records_would(
    pairs: list[tuple[bytes, bytes | None]], timestamp_ms: int, is_transactional: bool
) -> None:
    producer_id, producer_epoch = (77, 3) if is_transactional else (-1, -1)
    expected = build_batch(
        [Record(i, timestamp_ms, key, value) for i, (key, value) in enumerate(pairs)],
        base_offset=0,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=is_transactional,
    )
    built = build_key_values(
        pairs,
        timestamp_ms=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=is_transactional,
    )
    assert built == expected
