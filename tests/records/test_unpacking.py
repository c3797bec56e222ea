"""Large batches, unpacked outside of Python's own memory."""

import struct
import tracemalloc

import cramjam
import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model import Codec
from millstream.records.compression import TooLarge, compress, decompress
from millstream.records.unpacking import unpacked

COMPRESSING = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
MEGABYTE = 1 << 20


def unpack(codec: Codec, data: bytes | bytearray, limit_bytes: int) -> bytes:
    with unpacked(codec, data, limit_bytes=limit_bytes) as records:
        return bytes(records)


@given(st.sampled_from(Codec), st.binary(max_size=500), st.integers(1, 500))
def test_every_codec_round_trips(codec: Codec, data: bytes, times: int) -> None:
    original = data * times
    assert unpack(codec, compress(codec, original), len(original)) == original


@pytest.mark.parametrize("codec", [Codec.NONE, *COMPRESSING])
def test_one_byte_more_than_the_limit_is_refused(codec: Codec) -> None:
    packed = compress(codec, b"a" * 100_000)
    assert len(unpack(codec, packed, 100_000)) == 100_000
    with pytest.raises(TooLarge, match="more than 99999"):
        unpack(codec, packed, 99_999)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_python_allocates_next_to_nothing_for_a_large_batch(codec: Codec) -> None:
    """What it allocates, it fills, copies and frees while the event loop waits."""
    packed = compress(codec, bytes(60 * MEGABYTE))
    tracemalloc.start()
    try:
        with unpacked(codec, packed, limit_bytes=64 * MEGABYTE) as records:
            assert len(records) == 60 * MEGABYTE
        # One block of lz4 may have 4 MiB.
        assert tracemalloc.get_traced_memory()[1] < 10 * MEGABYTE
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", COMPRESSING)
@given(st.data())
def test_damaged_data_is_refused_as_by_decompress(codec: Codec, data: st.DataObject) -> None:
    packed = bytearray(compress(codec, b"some text, some text, some text" * 20))
    kind = data.draw(st.sampled_from(["flip", "cut", "garbage", "more"]))
    if kind == "flip":
        packed[data.draw(st.integers(0, len(packed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    elif kind == "cut":
        del packed[data.draw(st.integers(1, len(packed) - 1)) :]
    elif kind == "more":
        packed += data.draw(st.binary(min_size=1, max_size=60))
    else:
        packed[:] = data.draw(st.binary(min_size=1, max_size=60))
    try:
        expected = decompress(codec, packed, limit_bytes=10_000)
    except ValueError:
        with pytest.raises(ValueError):
            unpack(codec, packed, 10_000)
    else:
        assert unpack(codec, packed, 10_000) == expected


def test_gzip_members_one_after_the_other_are_all_read() -> None:
    members = [b"one" * 100_000, b"", b"two"]
    packed = b"".join(compress(Codec.GZIP, member) for member in members)
    assert unpack(Codec.GZIP, packed, MEGABYTE) == b"".join(members)


def test_lz4_data_that_does_not_get_smaller_is_read() -> None:
    original = bytes((i * i * 7919 >> 5) % 256 for i in range(300_000))
    assert unpack(Codec.LZ4, lz4.frame.compress(original), MEGABYTE) == original


def test_bare_snappy_of_other_clients_is_read() -> None:
    raw = bytes(cramjam.snappy.compress_raw(b"hello " * 100))
    assert unpack(Codec.SNAPPY, raw, 1000) == b"hello " * 100


@pytest.mark.parametrize(
    "read", [unpack, lambda *given: decompress(*given[:2], limit_bytes=given[2])]
)
def test_a_batch_of_countless_small_pieces_is_refused(read: object) -> None:
    assert callable(read)
    block = bytes(cramjam.snappy.compress_raw(b"a"))
    blocks = (
        b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + (struct.pack(">i", len(block)) + block) * 200
    )
    members = compress(Codec.GZIP, b"a") * 200
    for codec, packed in ((Codec.SNAPPY, blocks), (Codec.GZIP, members)):
        assert read(codec, packed, 2 * MEGABYTE) == b"a" * 200
        with pytest.raises(TooLarge):
            read(codec, packed, MEGABYTE)


def test_an_error_inside_the_block_is_raised_although_it_keeps_the_memory() -> None:
    packed = compress(Codec.ZSTD, b"abc")
    with (
        pytest.raises(RuntimeError, match="mine") as caught,
        unpacked(Codec.ZSTD, packed, limit_bytes=10) as records,
    ):
        raise RuntimeError("mine", memoryview(records))
    assert caught.value.args[1] == b"abc"
