"""Requests as bytes: Produce and Fetch frames, built once and replayed by `replay`.

Written here by hand, not with the broker's own codecs, so that a mistake there cannot hide
in the load. Produce version 9 and Fetch version 12: the first flexible ones, which name
topics and so need no lookup of ids.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from millstream.model import Codec
from millstream.records.builder import build_batch
from millstream.records.records import Record

PRODUCE: Final = 0
FETCH: Final = 1
PRODUCE_VERSION: Final = 9
FETCH_VERSION: Final = 12
CLIENT_ID: Final = b"bench"
# What one partition takes in an answer to Produce that reports no error.
_PRODUCE_RESULT_BYTES: Final = 4 + 2 + 8 + 8 + 8 + 1 + 1 + 1
_RECORD_OVERHEAD_BYTES: Final = 12


@dataclass(frozen=True, slots=True)
class Load:
    """Frames, and where an answer holds the error codes that must be zero."""

    frames: list[bytes]
    error_at: list[int]


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _compact(data: bytes) -> bytes:
    return varint(len(data) + 1) + data


def _frame(api_key: int, version: int, body: bytes) -> bytes:
    head = struct.pack(">hhih", api_key, version, 1, len(CLIENT_ID)) + CLIENT_ID + b"\0"
    return struct.pack(">i", len(head) + len(body)) + head + body


def text(size_bytes: int, seed: int) -> bytes:
    """A value that compresses as log lines do, about four to one."""
    line = b"2026-01-31T12:00:%02d.%03d INFO worker-%d handled request %d in %d us status=200 "
    out = bytearray()
    state = seed * 2654435761 + 12345
    while len(out) < size_bytes:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        out += line % (state % 60, state % 997, state % 13, state >> 40, (state >> 20) % 99999)
    return bytes(out[:size_bytes])


def batch(
    *,
    record_bytes: int,
    count: int,
    codec: Codec,
    timestamp_ms: int,
    transactional_sequence: int | None = None,
) -> bytes:
    """With a sequence number it is part of a transaction, of a producer to be filled in."""
    records = [
        Record(
            offset=i,
            timestamp_ms=timestamp_ms,
            key=None,
            value=text(record_bytes, i),
            headers=[],
        )
        for i in range(count)
    ]
    if transactional_sequence is None:
        return bytes(build_batch(records, base_offset=0, codec=codec))
    data = build_batch(
        records,
        base_offset=0,
        codec=codec,
        producer_id=0,
        producer_epoch=0,
        base_sequence=transactional_sequence,
        is_transactional=True,
    )
    return bytes(data)


def records_per_batch(record_bytes: int, batch_bytes: int) -> int:
    return max(1, batch_bytes // (record_bytes + _RECORD_OVERHEAD_BYTES))


def produce_load(
    topic: str,
    batches: Sequence[bytes],
    *,
    acks: int,
    partitions: Sequence[int] = (0,),
    version: int = PRODUCE_VERSION,
    transactional_id: str | None = None,
) -> Load:
    """One frame per batch; every frame carries its batch to all `partitions`.

    Versions up to 12 are laid out alike.
    """
    frames = []
    transaction = b"\0" if transactional_id is None else _compact(transactional_id.encode())
    for data in batches:
        body = transaction + struct.pack(">hi", acks, 30_000) + varint(2) + _compact(topic.encode())
        body += varint(len(partitions) + 1)
        for partition in partitions:
            body += struct.pack(">i", partition) + varint(len(data) + 1) + data + b"\0"
        frames.append(_frame(PRODUCE, version, body + b"\0\0"))
    # Correlation id, tags, count of topics, the topic, count of partitions; then results.
    results_at = 4 + 1 + 1 + 1 + len(topic) + 1
    error_at = [results_at + i * _PRODUCE_RESULT_BYTES + 4 for i in range(len(partitions))]
    return Load(frames, error_at)


def fetch_frame(topic: str, *, offset: int, max_bytes: int, min_bytes: int, wait_ms: int) -> bytes:
    body = struct.pack(">iiiibii", -1, wait_ms, min_bytes, max_bytes, 0, 0, -1)
    body += varint(2) + _compact(topic.encode()) + varint(2)
    body += struct.pack(">iiqiqi", 0, -1, offset, -1, -1, max_bytes) + b"\0\0"
    return _frame(FETCH, FETCH_VERSION, body + b"\1\1\0")


def long_poll_frame(topic: str, offsets: Sequence[int]) -> bytes:
    """Of a consumer that has no session and reads what is committed, as librdkafka's do."""
    body = struct.pack(">iiiibii", -1, 500, 1, 50 << 20, 1, 0, -1)
    body += varint(2) + _compact(topic.encode()) + varint(len(offsets) + 1)
    for index, offset in enumerate(offsets):
        body += struct.pack(">iiqiqi", index, -1, offset, -1, -1, 1 << 20) + b"\0"
    return _frame(FETCH, FETCH_VERSION, body + b"\0\1\1\0")


def fetch_errors_at(topic: str) -> list[int]:
    """The error of the whole answer, and that of its one partition."""
    return [4 + 1 + 4, fetch_records_at(topic) - 1 - 4 - 8 - 8 - 8 - 2]


def fetch_records_at(topic: str) -> int:
    """Where, in an answer for one partition, the length of the records stands."""
    before = 4 + 1 + 4 + 2 + 4 + 1 + 1 + len(topic) + 1
    # Index, error, three offsets, no aborted transactions (one byte), preferred replica.
    return before + 4 + 2 + 8 + 8 + 8 + 1 + 4


def fetch_offset_at(topic: str) -> int:
    """Where in a fetch frame, after its size, the offset stands."""
    head = 2 + 2 + 4 + 2 + len(CLIENT_ID) + 1
    return head + 25 + 1 + 1 + len(topic) + 1 + 4 + 4


def fetch_load(
    topic: str, *, batch_bytes: int, batch_records: int, batches: int, batches_per_fetch: int
) -> Load:
    """Read a log of equal batches from its start to its end, in whole batches."""
    frames = [
        fetch_frame(
            topic,
            offset=first * batch_records,
            max_bytes=batch_bytes * min(batches_per_fetch, batches - first),
            min_bytes=1,
            wait_ms=500,
        )
        for first in range(0, batches, batches_per_fetch)
    ]
    return Load(frames, fetch_errors_at(topic))
