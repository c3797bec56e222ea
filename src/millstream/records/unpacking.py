"""Unpacks large batches in a thread, while the event loop goes on.

Python fills, copies and frees its own bytes with the GIL held, and the loop waits: 40 ms for 60 MB.
Here the records are unpacked into pages of the system, by code that releases the GIL, or a little
at a time. They are there as long as the block lasts, to be looked at and forgotten.

`compression` has the codecs for everything else.
"""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from mmap import mmap
from typing import Final

from millstream.model import Codec
from millstream.records.compression import (
    GZIP_WBITS,
    Bytes,
    Pieces,
    TooLarge,
    is_zstd_full,
    snappy_blocks,
)

# What is copied with the GIL held: some microseconds.
_PART_BYTES: Final = 1 << 16
# How much longer than its records gzip data may be: honest data is by a thousandth. Blocks of
# tables and nothing else would keep the thread for seconds.
_GZIP_EXCESS_BYTES_MAX: Final = 1 << 20
# A part of an lz4 stream unpacks to 255 times as much, or to the block that it completes: 4 MiB.
_LZ4_PART_BYTES: Final = 1 << 12


@contextmanager
def unpacked(codec: Codec, data: Bytes, *, limit_bytes: int) -> Iterator[memoryview]:
    """The records, which must not be used after the block. Raises TooLarge when they are more than
    `limit_bytes`, ValueError when they are damaged."""
    if codec is Codec.NONE:
        if len(data) > limit_bytes:
            raise TooLarge(limit_bytes)
        yield memoryview(data)
        return
    # Pages are taken when something is written to them.
    memory = mmap(-1, max(limit_bytes, 1))
    try:
        with memoryview(memory) as view:
            size = _unpack(codec, memoryview(data), view[:limit_bytes])
            with view[:size] as records:
                yield records
    finally:
        # Releases the GIL, unlike the end of an object. If an error's traceback still has a part
        # of the memory, they end together.
        with suppress(BufferError):
            memory.close()


def _unpack(codec: Codec, data: memoryview, out: memoryview) -> int:
    """The size of the records."""
    with out:
        match codec:
            case Codec.GZIP:
                return _unpack_gzip(data, out)
            case Codec.SNAPPY:
                return _unpack_snappy(data, out)
            case Codec.LZ4:
                return _unpack_lz4(data, out)
            case _:
                return _unpack_zstd(data, out)


def _put(part: bytes, out: memoryview, size: int) -> int:
    """Copy it behind what is there; return the new size."""
    end = size + len(part)
    if end > len(out):
        raise TooLarge(len(out))
    out[size:end] = part
    return end


def _unpack_gzip(data: memoryview, out: memoryview) -> int:
    pieces = Pieces(len(out))
    size = position = 0
    while position < len(data):
        pieces.add()
        stream = zlib.decompressobj(wbits=GZIP_WBITS)
        while not stream.eof:
            given = stream.unconsumed_tail or data[position : position + _PART_BYTES]
            if given is not stream.unconsumed_tail:
                position += len(given)
            try:
                part = stream.decompress(given, _PART_BYTES)
            except zlib.error as error:
                raise ValueError(f"damaged gzip data: {error}") from error
            if not part and not given and not stream.eof:
                raise ValueError("gzip data ends early")
            size = _put(part, out, size)
            if position > size + _GZIP_EXCESS_BYTES_MAX:
                raise ValueError("gzip data is longer than what is in it")
        position -= len(stream.unused_data)
    return size


def _unpack_snappy(data: memoryview, out: memoryview) -> int:
    import cramjam

    size = 0
    for block in snappy_blocks(data, len(out)):
        try:
            end = size + cramjam.snappy.decompress_raw_len(block)
            if end > len(out):
                raise TooLarge(len(out))
            with out[size:end] as place:
                cramjam.snappy.decompress_raw_into(block, place)
        except cramjam.DecompressionError as error:
            raise ValueError(f"damaged snappy data: {error}") from error
        size = end
    return size


def _unpack_lz4(data: memoryview, out: memoryview) -> int:
    import lz4.frame

    stream = lz4.frame.LZ4FrameDecompressor()
    size = position = 0
    while not stream.eof:
        given = data[position : position + _LZ4_PART_BYTES]
        if not given:
            raise ValueError("lz4 data ends early")
        position += len(given)
        try:
            part = stream.decompress(given)
        except (RuntimeError, EOFError) as error:
            raise ValueError(f"damaged lz4 data: {error}") from error
        size = _put(part, out, size)
    if position < len(data) or stream.unused_data:
        raise ValueError("bytes after the end of the lz4 frame")
    return size


def _unpack_zstd(data: memoryview, out: memoryview) -> int:
    import cramjam

    try:
        size: int = cramjam.zstd.decompress_into(data, out)
    except cramjam.DecompressionError as error:
        if is_zstd_full(error):
            raise TooLarge(len(out)) from error
        raise ValueError(f"damaged zstd data: {error}") from error
    return size
