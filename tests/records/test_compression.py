"""Five codecs, and bombs that do not go off."""

import tracemalloc
import zlib

import cramjam
import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model import Codec
from millstream.records.compression import TooLarge, compress, decompress, decompress_light

COMPRESSING = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
MEGABYTE = 1 << 20


@given(st.sampled_from(Codec), st.binary(max_size=500), st.integers(1, 300))
def test_every_codec_round_trips(codec: Codec, data: bytes, times: int) -> None:
    original = data * times
    packed = compress(codec, original)
    assert decompress(codec, packed, limit_bytes=len(original)) == original


@pytest.mark.parametrize("codec", COMPRESSING)
def test_one_byte_more_than_the_limit_is_refused(codec: Codec) -> None:
    packed = compress(codec, b"a" * 100_000)
    assert len(decompress(codec, packed, limit_bytes=100_000)) == 100_000
    with pytest.raises(ValueError, match="more than 99999"):
        decompress(codec, packed, limit_bytes=99_999)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_bomb_allocates_no_more_than_the_limit(codec: Codec) -> None:
    bomb = compress(codec, bytes(64 * MEGABYTE))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError):
            decompress(codec, bomb, limit_bytes=MEGABYTE)
        assert tracemalloc.get_traced_memory()[1] < 8 * MEGABYTE
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", COMPRESSING)
@given(st.data())
def test_damaged_data_is_refused_with_a_value_error(codec: Codec, data: st.DataObject) -> None:
    packed = bytearray(compress(codec, b"some text, some text, some text" * 20))
    kind = data.draw(st.sampled_from(["flip", "cut", "garbage"]))
    if kind == "flip":
        packed[data.draw(st.integers(0, len(packed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    elif kind == "cut":
        del packed[data.draw(st.integers(1, len(packed) - 1)) :]
    else:
        packed[:] = data.draw(st.binary(min_size=1, max_size=60))
    try:
        unpacked = decompress(codec, packed, limit_bytes=10_000)
    except ValueError:
        return
    assert len(unpacked) <= 10_000


def test_bare_snappy_of_other_clients_is_read() -> None:
    raw = bytes(cramjam.snappy.compress_raw(b"hello " * 100))
    assert decompress(Codec.SNAPPY, raw, limit_bytes=1000) == b"hello " * 100


def test_snappy_is_written_in_javas_framing() -> None:
    assert compress(Codec.SNAPPY, b"x").startswith(
        b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    )


def test_gzip_members_one_after_the_other_are_all_read() -> None:
    packed = compress(Codec.GZIP, b"one") + compress(Codec.GZIP, b"two")
    assert decompress(Codec.GZIP, packed, limit_bytes=10) == b"onetwo"
    assert zlib.decompress(compress(Codec.GZIP, b"one"), 31) == b"one"


def test_lz4_blocks_are_independent_as_java_demands() -> None:
    framed = compress(Codec.LZ4, b"x" * 200_000)
    assert framed[4] & 0x20
    assert lz4.frame.decompress(framed) == b"x" * 200_000


def test_zstd_without_a_content_size_is_read() -> None:
    stream = cramjam.zstd.Compressor()
    stream.compress(b"y" * 3 * MEGABYTE)
    packed = bytes(stream.finish())
    assert decompress(Codec.ZSTD, packed, limit_bytes=4 * MEGABYTE) == b"y" * 3 * MEGABYTE


def test_an_lz4_frame_is_all_that_is_there_and_complete() -> None:
    framed = compress(Codec.LZ4, b"x" * 200_000)
    assert decompress(Codec.LZ4, memoryview(framed), limit_bytes=MEGABYTE) == b"x" * 200_000
    for other, problem in (
        (framed[:-1], "ends early"),
        (framed[:100], "ends early"),
        (framed[:5], "ends early"),
        (framed + b"\0", "bytes after"),
        (framed + framed, "bytes after"),
        (b"\0" + framed, "damaged"),
    ):
        with pytest.raises(ValueError, match=problem):
            decompress(Codec.LZ4, other, limit_bytes=MEGABYTE)


def test_on_the_loop_data_is_too_large_that_unpacks_to_next_to_nothing() -> None:
    """Each block may be the tables for its symbols, and takes microseconds."""
    empty_block = b"\0\0\0\xff\xff"
    stream = zlib.compressobj(wbits=31)
    packed = stream.compress(b"a") + stream.flush(zlib.Z_FULL_FLUSH)
    packed += empty_block * 100_000 + stream.flush()
    assert decompress(Codec.GZIP, packed, limit_bytes=MEGABYTE) == b"a"
    assert decompress_light(Codec.GZIP, packed, limit_bytes=4 * MEGABYTE) == b"a"
    with pytest.raises(TooLarge):
        decompress_light(Codec.GZIP, packed, limit_bytes=MEGABYTE)
