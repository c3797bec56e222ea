"""A record batch byte by byte: each field with its place, its value and what it means."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from millstream.model import Codec
from millstream.records.batch import CODEC_MASK, HEADER_BYTES, BatchView
from millstream.records.records import read_varint

# Records whose fields are listed; a batch may have thousands.
RECORDS_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class Field:
    """Bytes [start, end) of the batch."""

    start: int
    end: int
    name: str
    value: str
    meaning: str = ""


def batch_fields(batch: BatchView) -> list[Field]:
    """The header, and the records if they are not compressed. Raises ValueError for damage."""
    fields = list(_header(batch))
    if not batch.attributes & CODEC_MASK:
        fields += _records(batch)
    elif batch.size_bytes > HEADER_BYTES:
        text = f"{batch.record_count} records, compressed"
        fields.append(Field(HEADER_BYTES, batch.size_bytes, "records", text))
    return fields


def _header(batch: BatchView) -> Iterator[Field]:
    crc = "right" if batch.crc_is_valid() else "WRONG: the bytes are damaged"
    yield Field(0, 8, "baseOffset", str(batch.base_offset), "of the first record")
    yield Field(8, 12, "batchLength", str(batch.size_bytes - 12), "bytes after this field")
    yield Field(12, 16, "partitionLeaderEpoch", str(batch.partition_leader_epoch), "who wrote it")
    yield Field(16, 17, "magic", str(batch.magic), "the version of the format")
    yield Field(17, 21, "crc", f"{batch.crc & 0xFFFFFFFF:#010x}", crc)
    yield Field(21, 23, "attributes", f"{batch.attributes:#06x}", _attributes(batch))
    yield Field(23, 27, "lastOffsetDelta", str(batch.last_offset_delta), f"to {batch.last_offset}")
    yield Field(27, 35, "baseTimestamp", str(batch.base_timestamp_ms), "of the first record")
    yield Field(35, 43, "maxTimestamp", str(batch.max_timestamp_ms), "of the newest record")
    producer = "no id" if batch.producer_id < 0 else "an idempotent producer"
    yield Field(43, 51, "producerId", str(batch.producer_id), producer)
    yield Field(51, 53, "producerEpoch", str(batch.producer_epoch))
    yield Field(53, 57, "baseSequence", str(batch.base_sequence))
    yield Field(57, 61, "recordCount", str(batch.record_count))


def _attributes(batch: BatchView) -> str:
    try:
        codec = Codec(batch.attributes & CODEC_MASK).name.lower()
    except ValueError:
        codec = "an unknown codec"
    words = ["not compressed" if codec == "none" else codec]
    words.append("LogAppendTime" if batch.timestamp_type else "CreateTime")
    if batch.is_transactional:
        words.append("transactional")
    if batch.is_control:
        words.append("control")
    return ", ".join(words)


def _records(batch: BatchView) -> Iterator[Field]:
    data, at = batch.bytes, HEADER_BYTES
    for number in range(min(batch.record_count, RECORDS_MAX)):
        prefix = f"record {number} "
        length, after = read_varint(data, at)
        if length <= 0 or after + length > len(data):
            raise ValueError(f"record {number} of {length} bytes does not fit its batch")
        yield Field(at, after, prefix + "length", str(length), "varint")
        end = after + length
        yield Field(after, after + 1, prefix + "attributes", str(data[after]), "unused")
        at = after + 1
        for name, meaning in (("timestampDelta", "ms"), ("offsetDelta", "")):
            value, after = read_varint(data, at, bytes_max=10)
            yield Field(at, after, prefix + name, f"{value:+d}", meaning)
            at = after
        for name in ("key", "value"):
            size, after = read_varint(data, at)
            text = "null" if size < 0 else f"{size} bytes"
            yield Field(at, after, prefix + name + " length", text)
            at = after + max(size, 0)
            if size > 0:
                yield Field(after, at, prefix + name, f"{size} bytes")
        if at > end:
            raise ValueError(f"record {number} is longer than it says")
        yield Field(at, end, prefix + "headers", f"{end - at} bytes")
        at = end
