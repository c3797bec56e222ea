"""Both implementations of the record loops, held against each other and the plain reader."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model import Codec, TimestampType
from millstream.records import _columns_pure, columns
from millstream.records.batch import BatchView, split_batches
from millstream.records.builder import build_batch
from millstream.records.columns import COMPILED, INT64_MAX, PURE, Columns, Stop, decode
from millstream.records.control import ControlType, EndTransactionMarker, build_end_marker
from millstream.records.records import Record, read_records

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
BOTH = [pytest.param(PURE, id="pure"), pytest.param(COMPILED, id="compiled")]

fields = st.one_of(st.none(), st.binary(max_size=12))
headers = st.lists(st.tuples(st.text(max_size=4), fields), max_size=2)
gaps = st.integers(1, 3)
times = st.integers(-5_000, 5_000).map(lambda delta: NOW_MS + delta)


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Batches back to back, with gaps as compaction leaves them."""
    data = b""
    offset = draw(st.integers(0, 2**40))
    for _ in range(draw(st.integers(1, 4))):
        records = []
        base = offset
        for _ in range(draw(st.integers(1, 9))):
            key = draw(st.one_of(st.none(), st.sampled_from([b"", b"a", b"bb", b"long" * 40])))
            records.append(Record(offset, draw(times), key, draw(fields), draw(headers)))
            offset += draw(gaps)
        data += build_batch(
            records,
            base_offset=base,
            codec=draw(st.sampled_from([Codec.NONE, Codec.NONE, Codec.LZ4])),
            producer_id=draw(st.sampled_from([-1, 7])),
            timestamp_type=draw(st.sampled_from(list(TimestampType))),
            is_transactional=draw(st.booleans()),
        )
    return data


def plain_log() -> bytes:
    return b"".join(
        bytes(
            build_batch(
                [
                    Record(offset, NOW_MS + offset, b"k%d" % (offset % 3), b"v%d" % offset)
                    for offset in range(base, base + 4)
                ],
                base_offset=base,
            )
        )
        for base in (0, 4, 8)
    )


def records_of(data: bytes) -> list[Record]:
    return [
        record
        for batch in split_batches(memoryview(data))
        for record in read_records(batch, limit_bytes=1 << 20)
    ]


def as_records(found: Columns) -> list[Record]:
    """Columns read back as Arrow reads them."""
    names = list(strings(found.header_name_ends, found.header_name_data, None))
    contents = list(
        strings(found.header_value_ends, found.header_value_data, found.header_value_validity)
    )
    header_ends = numbers("i", found.header_ends)
    keys = strings(found.key_ends, found.key_data, found.key_validity)
    values = strings(found.value_ends, found.value_data, found.value_validity)
    return [
        Record(
            offset,
            timestamp_ms,
            key,
            value,
            [
                ((names[number] or b"").decode(), contents[number])
                for number in range(header_ends[index], header_ends[index + 1])
            ],
        )
        for index, (offset, timestamp_ms, key, value) in enumerate(
            zip(
                numbers("q", found.offsets),
                numbers("q", found.timestamps_ms),
                keys,
                values,
                strict=True,
            )
        )
    ]


def strings(ends: bytes, data: bytes, validity: bytes | None) -> list[bytes | None]:
    found = numbers("i", ends)
    return [
        data[found[n] : found[n + 1]]
        if validity is None or validity[n // 8] >> (n % 8) & 1
        else None
        for n in range(len(found) - 1)
    ]


def numbers(kind: str, data: bytes) -> list[int]:
    size = struct.calcsize(kind)
    return [
        number for (number,) in struct.iter_unpack(f"={kind}", data[: len(data) // size * size])
    ]


def test_the_tests_see_the_compiled_module() -> None:
    assert COMPILED is not None, "build it: python setup.py build_ext --inplace"
    assert columns.IMPLEMENTATION is COMPILED


def test_the_hash_and_the_checksum_are_the_known_ones() -> None:
    from millstream.records import _columns

    # The first vector of SipHash's reference implementation for 128 bits.
    keys = _columns.KeyMap(1, 0.9, bytes(range(16)))
    assert keys.hash_of(b"").hex() == "a3817f04ba25a8e66df67214c7550293"
    assert _columns.checksum(b"123456789") == (0xE3069283, 0xE3069283)
    assert _columns.checksum(b"xx123456789"[2:] * 50)[0] == _columns.checksum(b"123456789" * 50)[1]


@given(logs())
def test_columns_hold_what_the_plain_reader_reads(data: bytes) -> None:
    expected = records_of(data)
    for implementation in (PURE, COMPILED):
        assert implementation is not None
        found = decode(data, implementation=implementation)
        assert found.count == len(expected)
        assert as_records(found) == expected


@given(logs(), st.integers(-3, 30), st.integers(-3, 30))
def test_columns_of_a_range_hold_its_offsets_only(data: bytes, first: int, upto: int) -> None:
    base = BatchView(memoryview(data)).base_offset
    first, upto = base + first, base + upto
    expected = [record for record in records_of(data) if first <= record.offset < upto]
    assert COMPILED is not None
    found = decode(data, from_offset=first, upto_offset=upto, implementation=COMPILED)
    assert as_records(found) == expected
    assert found == decode(data, from_offset=first, upto_offset=upto, implementation=PURE)


@pytest.mark.parametrize("implementation", [columns.PURE, columns.IMPLEMENTATION])
def test_a_builder_that_was_emptied_begins_again(implementation: columns.Implementation) -> None:
    def add(builder: columns.ColumnsBuilder, count: int) -> tuple[bytes, ...]:
        records = [
            Record(offset=n, timestamp_ms=n, key=b"k" * n, value=None, headers=(("h", b"1"),))
            for n in range(count)
        ]
        batch = BatchView(memoryview(build_batch(records, base_offset=0)))
        builder.add(batch.buffer[:61], batch.records, 0, count)
        assert builder.count == count
        return builder.take()

    used = implementation.ColumnsBuilder()
    add(used, 20)
    assert used.count == 0
    assert add(used, 9) == add(implementation.ColumnsBuilder(), 9)


@given(st.integers(0, 20), st.integers(0, 20), st.integers(0, 300), st.integers(0, 255))
def test_a_batch_that_is_refused_leaves_no_trace(
    first: int, second: int, position: int, byte: int
) -> None:
    """The batch before it and the one after it are as if it had not been there."""

    def batch_of(count: int) -> BatchView:
        records = [
            Record(n, n, b"k" * (n % 3) if n % 2 else None, b"v" * n, [("h", None), ("i", b"1")])
            for n in range(count + 1)
        ]
        return BatchView(memoryview(build_batch(records, base_offset=0)))

    spoiled = bytearray(batch_of(20).records)
    spoiled[position % len(spoiled)] = byte
    for implementation in (PURE, COMPILED):
        assert implementation is not None
        found = []
        for middle in (None, bytes(spoiled)):
            builder = implementation.ColumnsBuilder()
            builder.add(batch_of(first).bytes[:61], batch_of(first).records, 0, 100)
            if middle is not None:
                try:
                    builder.add(batch_of(20).bytes[:61], middle, 0, 100)
                except ValueError:
                    pass
                else:
                    return
            builder.add(batch_of(second).bytes[:61], batch_of(second).records, 0, 100)
            found.append(builder.take())
        assert found[0] == found[1]


@pytest.mark.parametrize("implementation", BOTH)
def test_control_batches_and_skipped_batches_are_in_no_column(
    implementation: columns.Implementation,
) -> None:
    marker = build_end_marker(
        EndTransactionMarker(ControlType.COMMIT, 0),
        base_offset=12,
        producer_id=1,
        producer_epoch=0,
        timestamp_ms=NOW_MS,
    )
    found = decode(
        plain_log() + marker,
        is_skipped=lambda batch: batch.base_offset == 4,
        implementation=implementation,
    )
    assert numbers("q", found.offsets) == [0, 1, 2, 3, 8, 9, 10, 11]


@pytest.mark.parametrize("implementation", BOTH)
def test_a_flipped_bit_is_an_error_not_a_column(implementation: columns.Implementation) -> None:
    data = bytearray(plain_log())
    data[100] ^= 1
    with pytest.raises(ValueError, match="checksum"):
        decode(data, implementation=implementation)


@given(st.binary(max_size=60), st.integers(0, 200), st.integers(0, 255))
def test_both_refuse_the_same_bytes(extra: bytes, position: int, byte: int) -> None:
    """Records from a stranger: nothing is read that is not there, whatever they say."""
    batch = BatchView(memoryview(plain_log()))
    header = batch.bytes[:61]
    records = bytearray(batch.records) + extra
    records[position % len(records)] = byte
    results = []
    for implementation in (PURE, COMPILED):
        assert implementation is not None
        builder = implementation.ColumnsBuilder()
        try:
            builder.add(header, bytes(records), 0, 2**62)
            results.append(builder.take())
        except ValueError:
            results.append(None)
    assert results[0] == results[1]


def filled(implementation: columns.Implementation, data: bytes) -> columns.KeyMap:
    keys = implementation.KeyMap(100)
    position = 0
    while position < len(data):
        position, stop = keys.add_batches(data, position, 0)
        if stop == Stop.SPECIAL:
            batch = BatchView(memoryview(data)[position:])
            records = bytes(columns.unpacked_records(batch))
            stop = keys.add_records(
                records, batch.base_offset, batch.last_offset_delta, batch.record_count, 0
            )
            position += batch.size_bytes
        assert stop == Stop.END
    return keys


@given(logs())
def test_a_key_map_knows_the_newest_offset_of_each_key(data: bytes) -> None:
    newest = {record.key: record.offset for record in records_of(data) if record.key is not None}
    last_offset = list(split_batches(memoryview(data)))[-1].last_offset
    for implementation in (PURE, COMPILED):
        assert implementation is not None
        keys = filled(implementation, data)
        assert keys.count == len(newest)
        assert {key: keys.offset_of(key) for key in newest} == newest
        assert keys.offset_of(b"nobody has this key") == -1
        assert keys.latest_offset == last_offset


@pytest.mark.parametrize("implementation", BOTH)
def test_a_full_key_map_stops_before_the_batch_that_does_not_fit(
    implementation: columns.Implementation,
) -> None:
    batches = [
        build_batch([Record(offset, NOW_MS, b"%d" % offset, b"")], base_offset=offset)
        for offset in range(5)
    ]
    keys = implementation.KeyMap(3)
    position, stop = keys.add_batches(b"".join(batches), 0, 0)
    assert (position, stop) == (sum(map(len, batches[:3])), Stop.FULL)
    assert (keys.count, keys.latest_offset) == (3, 2)
    # A key that is in already needs no room.
    again = build_batch([Record(9, NOW_MS, b"0", b"")], base_offset=9)
    assert keys.add_batches(again, 0, 0)[1] == Stop.END
    assert keys.offset_of(b"0") == 9


@pytest.mark.parametrize("implementation", BOTH)
def test_a_key_map_takes_in_nothing_below_its_start(
    implementation: columns.Implementation,
) -> None:
    keys = implementation.KeyMap(10)
    keys.add_batches(plain_log(), 0, 6)
    assert [keys.offset_of(b"k%d" % n) for n in range(3)] == [9, 10, 11]
    keys = implementation.KeyMap(10)
    keys.add_batches(plain_log()[: len(plain_log()) // 3], 0, 2)
    assert [keys.offset_of(b"k%d" % n) for n in range(3)] == [3, -1, 2]


def rewritten(
    implementation: columns.Implementation,
    data: bytes,
    *,
    keys: columns.KeyMap | None = None,
    kept_offsets: tuple[int, ...] = (),
    now_ms: int = NOW_MS,
    delete_retention_ms: int = DAY_MS,
    is_end: bool = False,
) -> tuple[bytes, list[int]]:
    """Plain batches rewritten, special ones left out; the output and the marks."""
    rewriter = implementation.Rewriter(
        keys or filled(implementation, data), kept_offsets, now_ms, delete_retention_ms, 100
    )
    position = 0
    while position < len(data):
        position, stop = rewriter.rewrite_batches(data, position, is_end)
        assert stop in (Stop.END, Stop.SPECIAL)
        if stop == Stop.SPECIAL:
            position += BatchView(memoryview(data)[position:]).size_bytes
    out = rewriter.take_bytes()
    assert rewriter.position == len(out)
    return out, numbers("q", rewriter.take_marks())


@given(logs(), st.booleans(), st.integers(0, 2 * DAY_MS))
def test_both_rewrite_to_the_same_bytes(data: bytes, is_end: bool, later_ms: int) -> None:
    assert COMPILED is not None
    last_offsets = tuple(batch.last_offset for batch in split_batches(memoryview(data)))[:1]
    first = [
        rewritten(each, data, kept_offsets=last_offsets, is_end=is_end) for each in (PURE, COMPILED)
    ]
    assert first[0] == first[1]
    # Once more, later, over batches that have gaps and a delete horizon by now.
    if first[0][0]:
        now_ms = NOW_MS + later_ms
        again = [rewritten(each, first[0][0], now_ms=now_ms) for each in (PURE, COMPILED)]
        assert again[0] == again[1]


@given(logs())
def test_a_rewritten_log_has_the_newest_record_of_each_key(data: bytes) -> None:
    assert COMPILED is not None
    plain = b"".join(
        bytes(batch.bytes)
        for batch in split_batches(memoryview(data))
        if not batch.attributes & 0x37
    )
    newest = {record.key: record for record in records_of(plain) if record.key is not None}
    out, _ = rewritten(COMPILED, plain)
    assert {record.key: record for record in records_of(out)} == newest
    assert all(batch.crc_is_valid() for batch in split_batches(memoryview(out)))
    by_last_offset = {batch.last_offset: batch for batch in split_batches(memoryview(plain))}
    for batch in split_batches(memoryview(out)):
        original = by_last_offset[batch.last_offset]
        assert batch.base_offset == original.base_offset
        assert batch.producer_id == original.producer_id
        assert batch.last_sequence == original.last_sequence


@pytest.mark.parametrize("implementation", BOTH)
class TestTombstones:
    def log(self) -> bytes:
        records = [Record(0, NOW_MS - 5, b"a", b"1"), Record(1, NOW_MS, b"b", None)]
        return bytes(build_batch(records, base_offset=0))

    def test_a_tombstone_gets_a_delete_horizon_once(
        self, implementation: columns.Implementation
    ) -> None:
        out, _ = rewritten(implementation, self.log())
        batch = BatchView(memoryview(out))
        assert batch.attributes & 0x40
        assert batch.base_timestamp_ms == NOW_MS + DAY_MS
        assert records_of(out) == records_of(self.log())
        assert batch.max_timestamp_ms == NOW_MS
        assert rewritten(implementation, out, now_ms=NOW_MS + DAY_MS - 1)[0] == out

    def test_after_its_horizon_it_goes(self, implementation: columns.Implementation) -> None:
        marked, _ = rewritten(implementation, self.log())
        out, _ = rewritten(implementation, marked, now_ms=NOW_MS + DAY_MS)
        assert [record.key for record in records_of(out)] == [b"a"]
        assert BatchView(memoryview(out)).max_timestamp_ms == NOW_MS - 5

    @pytest.mark.parametrize(
        "retention_ms", [INT64_MAX, INT64_MAX - NOW_MS, INT64_MAX - NOW_MS + 1]
    )
    def test_one_that_is_kept_for_ever_stays(
        self, retention_ms: int, implementation: columns.Implementation
    ) -> None:
        kept, _ = rewritten(implementation, self.log(), delete_retention_ms=retention_ms)
        assert BatchView(memoryview(kept)).base_timestamp_ms == INT64_MAX
        assert records_of(kept) == records_of(self.log())
        assert rewritten(implementation, kept, now_ms=NOW_MS * 1000)[0] == kept

    def test_one_much_older_than_its_horizon_is_written_as_64_bits_hold_it(
        self, implementation: columns.Implementation
    ) -> None:
        data = bytes(build_batch([Record(0, 2 - INT64_MAX, b"b", None)], base_offset=0))
        out, _ = rewritten(implementation, data, delete_retention_ms=INT64_MAX)
        assert BatchView(memoryview(out)).base_timestamp_ms == INT64_MAX
        assert BatchView(memoryview(out)).max_timestamp_ms == 2 - INT64_MAX
        assert out == rewritten(PURE, data, delete_retention_ms=INT64_MAX)[0]
        # Zigzag of 4, which with the base timestamp wraps to the record's.
        assert out[61 + 2] == 8


@pytest.mark.parametrize("implementation", BOTH)
class TestEmptyBatches:
    def rewrite(self, implementation: columns.Implementation, **options: object) -> bytes:
        keys = implementation.KeyMap(10)
        newer = build_batch([Record(9, NOW_MS, b"k", b"new")], base_offset=9)
        keys.add_batches(newer, 0, 0)
        old = build_batch(
            [Record(4, NOW_MS, b"k", b"old"), Record(5, NOW_MS, b"k", b"old")],
            base_offset=4,
            producer_id=3,
            producer_epoch=1,
            base_sequence=10,
        )
        return rewritten(implementation, bytes(old), keys=keys, **options)[0]  # type: ignore[arg-type]

    def test_a_batch_without_records_goes(self, implementation: columns.Implementation) -> None:
        assert self.rewrite(implementation) == b""

    @pytest.mark.parametrize("options", [{"kept_offsets": (5,)}, {"is_end": True}])
    def test_the_last_batch_of_a_producer_and_of_a_file_keeps_its_header(
        self, implementation: columns.Implementation, options: dict[str, object]
    ) -> None:
        out = self.rewrite(implementation, **options)
        batch = BatchView(memoryview(out))
        assert len(out) == 61
        assert (batch.base_offset, batch.last_offset, batch.record_count) == (4, 5, 0)
        assert (batch.producer_id, batch.producer_epoch, batch.last_sequence) == (3, 1, 11)
        assert (batch.base_timestamp_ms, batch.max_timestamp_ms) == (-1, NOW_MS)
        assert batch.crc_is_valid()

    def test_an_empty_batch_that_nobody_needs_any_more_goes(
        self, implementation: columns.Implementation
    ) -> None:
        out = self.rewrite(implementation, is_end=True)
        keys = implementation.KeyMap(1)
        assert rewritten(implementation, out, keys=keys)[0] == b""
        assert rewritten(implementation, out, keys=keys, is_end=True)[0] == out


@pytest.mark.parametrize("implementation", BOTH)
def test_damage_stops_the_rewriter_at_the_damaged_batch(
    implementation: columns.Implementation,
) -> None:
    data = bytearray(plain_log())
    size = len(data) // 3
    data[size + 70] ^= 1
    rewriter = implementation.Rewriter(filled(implementation, plain_log()), (), NOW_MS, 0, 100)
    assert rewriter.rewrite_batches(data, 0, False) == (size, Stop.DAMAGED)


def test_the_pure_module_is_complete() -> None:
    from millstream.records import _columns

    offered = {name for name in dir(_columns_pure) if name in columns.Implementation.__dict__}
    assert {"KeyMap", "Rewriter", "ColumnsBuilder"} <= offered
    assert _columns.ENTRY_BYTES == 24
