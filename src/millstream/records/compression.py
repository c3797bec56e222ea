"""The five codecs of a record batch, with a hard limit on what comes out.

Compressed bytes arrive from strangers: a kilobyte of zstd can stand for tens of megabytes.
`decompress` never holds more than `limit_bytes` of output, whatever the input claims.
The codec libraries are imported on first use; most brokers never decompress anything.
How far a produced batch may unpack is decided in `validation`. For large batches there is
`unpacking`.
"""

import struct
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final

from millstream.model import Codec

Bytes = bytes | bytearray | memoryview

# Java's snappy stream ("xerial"): this magic, version 1, compatible from version 1, and
# then blocks, each after its length. librdkafka and Java read both this and bare snappy.
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_INT32: Final = struct.Struct(">i")

GZIP_WBITS: Final = 31
_ZSTD_FIRST_GUESS: Final = 16
# A few pieces, and one for so many bytes of the limit: each takes microseconds, however small it
# is. Clients write snappy blocks of 32 KiB, and a single gzip member.
_FEW_PIECES: Final = 16
_BYTES_PER_PIECE: Final = 8 * 1024
# How many bytes could be unpacked in the time that a codec takes at most to read one, by its
# number: a block may be the tables for its symbols, and nothing else.
_BYTES_PER_BYTE_READ: Final = (0, 4, 1, 1, 4)
# What every gzip member begins with.
_GZIP_MEMBER: Final = b"\x1f\x8b\x08"


class TooLarge(ValueError):
    """The data unpacks to more than the limit, or is in more pieces than belong to so much."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"records unpack to more than {limit_bytes} bytes")


class Pieces:
    """Counts the gzip members or the snappy blocks of one batch."""

    __slots__ = ("_left", "_limit_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._left = _FEW_PIECES + limit_bytes // _BYTES_PER_PIECE

    def add(self) -> None:
        """Raises TooLarge: a megabyte of empty pieces would take a second to unpack."""
        self._left -= 1
        if self._left < 0:
            raise TooLarge(self._limit_bytes)


def compress(codec: Codec, data: Bytes) -> bytes:
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            stream = zlib.compressobj(wbits=GZIP_WBITS)
            return stream.compress(data) + stream.flush()
        case Codec.SNAPPY:
            return _compress_snappy(memoryview(data))
        case Codec.LZ4:
            import lz4.frame

            # Kafka's Java reader refuses linked blocks.
            framed: bytes = lz4.frame.compress(data, block_linked=False, store_size=False)
            return framed
        case Codec.ZSTD:
            import cramjam

            return bytes(cramjam.zstd.compress(data))


def decompress(codec: Codec, data: Bytes, *, limit_bytes: int) -> bytes:
    """Raises TooLarge when the data is more than `limit_bytes` unpacked, ValueError when it is
    damaged."""
    return _DECOMPRESSORS[codec](data, limit_bytes)


def decompress_light(codec: Codec, data: Bytes, *, limit_bytes: int) -> bytes:
    """`decompress` for the event loop: data that takes longer to read than so many bytes take to
    unpack is too large, even if next to nothing comes out."""
    if bytes_of_reading(codec, data) > limit_bytes:
        raise TooLarge(limit_bytes)
    return decompress(codec, data, limit_bytes=limit_bytes)


def bytes_of_reading(codec: Codec, data: Bytes) -> int:
    """About how much else could be unpacked in the time that it takes at most to read the data."""
    return len(data) * _BYTES_PER_BYTE_READ[codec]


def bytes_of_pieces(codec: Codec, data: Bytes, *, limit_bytes: int) -> int:
    """About how much else could be unpacked in the time that the pieces of this batch take, where
    the limit is not exceeded: they may be thousands, and empty. The first one counts nothing."""
    if codec is Codec.GZIP:
        pieces = bytes(data).count(_GZIP_MEMBER)
    elif codec is Codec.SNAPPY and bytes(data[: len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC:
        pieces = _count_blocks(memoryview(data), limit_bytes // _BYTES_PER_PIECE + 2)
    else:
        return 0
    return max(pieces - 1, 0) * _BYTES_PER_PIECE


def _count_blocks(data: memoryview, count_max: int) -> int:
    """Of Java's snappy stream."""
    count, position = 0, len(_XERIAL_HEADER)
    while count < count_max and len(data) - position >= 4:
        (length,) = _INT32.unpack_from(data, position)
        if length < 0:
            break
        count += 1
        position += 4 + length
    return count


def _within(data: Bytes, limit_bytes: int) -> bytes:
    if len(data) > limit_bytes:
        raise TooLarge(limit_bytes)
    return bytes(data)


def _decompress_gzip(data: Bytes, limit_bytes: int) -> bytes:
    """Every member of the stream: Java's reader continues after the first, so do we."""
    pieces = Pieces(limit_bytes)
    parts: list[bytes] = []
    size = 0
    rest = bytes(data)
    while rest:
        pieces.add()
        stream = zlib.decompressobj(wbits=GZIP_WBITS)
        try:
            part = stream.decompress(rest, limit_bytes - size + 1)
        except zlib.error as error:
            raise ValueError(f"damaged gzip data: {error}") from error
        size += len(part)
        if size > limit_bytes:
            raise TooLarge(limit_bytes)
        if not stream.eof:
            raise ValueError("gzip data ends early")
        parts.append(part)
        rest = stream.unused_data
    return b"".join(parts)


def _compress_snappy(data: memoryview) -> bytes:
    import cramjam

    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(bytes(data[start : start + _XERIAL_BLOCK_BYTES])))
        parts.append(_INT32.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _decompress_snappy(data: Bytes, limit_bytes: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    for block in snappy_blocks(memoryview(data), limit_bytes):
        part = _decompress_snappy_block(bytes(block), size, limit_bytes)
        size += len(part)
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def snappy_blocks(data: memoryview, limit_bytes: int) -> Iterator[memoryview]:
    """Those of Java's stream, or the one that bare snappy is. Raises TooLarge where they are more
    than belong to `limit_bytes`."""
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        yield data
        return
    pieces = Pieces(limit_bytes)
    position = len(_XERIAL_HEADER)
    while position < len(data):
        if len(data) - position < 4:
            raise ValueError("snappy stream ends inside a block length")
        (length,) = _INT32.unpack_from(data, position)
        position += 4
        if length < 0 or length > len(data) - position:
            raise ValueError("snappy block is longer than its stream")
        pieces.add()
        yield data[position : position + length]
        position += length


def _decompress_snappy_block(block: bytes, size_before: int, limit_bytes: int) -> bytes:
    import cramjam

    try:
        # The block declares its size up front, and the library allocates that much.
        if size_before + cramjam.snappy.decompress_raw_len(block) > limit_bytes:
            raise TooLarge(limit_bytes)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise ValueError(f"damaged snappy data: {error}") from error


@cache
def _lz4_frame() -> Any:
    # An import statement in a function that runs for every batch takes a third of a microsecond.
    import lz4.frame

    return lz4.frame


def _decompress_lz4(data: Bytes, limit_bytes: int) -> bytes:
    # Not `LZ4FrameDecompressor`, which copies the data and takes as long again as a small batch.
    frame = _lz4_frame()
    try:
        unpacked, read, is_whole = frame.decompress_chunk(
            frame.create_decompression_context(), data, max_length=limit_bytes + 1
        )
    except (RuntimeError, EOFError) as error:
        raise ValueError(f"damaged lz4 data: {error}") from error
    if len(unpacked) > limit_bytes:
        raise TooLarge(limit_bytes)
    if not is_whole:
        raise ValueError("lz4 data ends early")
    if read < len(data):
        raise ValueError("bytes after the end of the lz4 frame")
    whole: bytes = unpacked
    return whole


def _decompress_zstd(data: Bytes, limit_bytes: int) -> bytes:
    """Unpack into a buffer that grows up to the limit and never past it.

    Streaming encoders leave the size out of the frame, so it has to be found by trying.
    """
    import cramjam

    data = bytes(data)
    size = min(limit_bytes, max(_ZSTD_FIRST_GUESS * len(data), 64 * 1024))
    while True:
        buffer = bytearray(size)
        try:
            length = cramjam.zstd.decompress_into(data, buffer)
        except cramjam.DecompressionError as error:
            if not is_zstd_full(error):
                raise ValueError(f"damaged zstd data: {error}") from error
            if size == limit_bytes:
                raise TooLarge(limit_bytes) from error
            size = min(limit_bytes, size * 8)
            continue
        return bytes(memoryview(buffer)[:length])


def is_zstd_full(error: Exception) -> bool:
    """Is it that the records are larger than the buffer, and nothing worse?"""
    return "write whole buffer" in str(error)


# By the codec's number: to `match` the members of an enum takes longer than a small batch.
_DECOMPRESSORS: Final[tuple[Callable[[Bytes, int], bytes], ...]] = (
    _within,
    _decompress_gzip,
    _decompress_snappy,
    _decompress_lz4,
    _decompress_zstd,
)
