"""Recognises a Produce that a client repeats, by comparison instead of decoding.

Requests of one producer to one partition have the same bytes up to the records, except for
the correlation id. These bytes are decoded once, by `wire.produce`, and kept; a frame that
begins with the same bytes means the same. A frame that differs anywhere is no repetition,
whatever is wrong with it, and is decoded like any other.
"""

import struct
from typing import Final

from millstream.wire import output
from millstream.wire.headers import SIZE_BYTES, RequestHeader
from millstream.wire.produce import (
    ACKS_ALL,
    FLEXIBLE_FROM,
    TOPIC_IDS_FROM,
    ProduceRequest,
    ProduceTopic,
)

_CORRELATION_ID: Final = struct.Struct(">i")
_CORRELATION_AT: Final = 4
_AFTER_CORRELATION: Final = 8
# After the records: no tags of the partition, the topic and the request.
_END: Final = b"\0\0\0"
_END_BYTES: Final = len(_END)
# No record errors, no message, no tags of partition and topic, no throttling, no tags.
_ANSWER_END: Final = b"\1\0\0\0" + bytes(5)


class RepeatedProduce:
    __slots__ = (
        "_after_correlation",
        "_answer",
        "_answer_begin",
        "_answer_bytes",
        "_before_correlation",
        "_length_at",
        "before_records",
        "header",
        "index",
        "is_acks_all",
        "timeout_ms",
        "topic",
    )

    def __init__(
        self,
        header: RequestHeader,
        body: ProduceRequest,
        topic: ProduceTopic,
        index: int,
        before_records: bytes,
    ) -> None:
        """`before_records` is the frame up to the length of the records."""
        self.header = header
        self.is_acks_all = body.acks == ACKS_ALL
        self.timeout_ms = body.timeout_ms
        self.topic = topic
        self.index = index
        self.before_records = before_records
        self._before_correlation = before_records[:_CORRELATION_AT]
        self._after_correlation = before_records[_AFTER_CORRELATION:]
        self._length_at = len(before_records)
        written = topic.topic_id.bytes
        if header.version < TOPIC_IDS_FROM:
            name = topic.name.encode()
            written = _varint(len(name) + 1) + name
        self._answer_begin = b"\0\2" + written + b"\2"
        begin, end = len(self._answer_begin), len(_ANSWER_END)
        self._answer = struct.Struct(f">ii{begin}sihqqq{end}s")
        self._answer_bytes = self._answer.size - SIZE_BYTES

    def records_of(self, frame: memoryview) -> memoryview | None:
        """The records, if the frame is this request once more."""
        at = self._length_at
        end = len(frame) - _END_BYTES
        # A length takes at most five bytes.
        if at + 5 > end or frame[end] or frame[end + 1] or frame[end + 2]:
            return None
        # One copy of some dozen bytes: views are compared byte by byte.
        before = frame[:at].tobytes()
        if not (
            before.startswith(self._after_correlation, _AFTER_CORRELATION)
            and before.startswith(self._before_correlation)
        ):
            return None
        length = shift = 0
        byte = 0x80
        while byte >= 0x80 and shift < 35:
            byte = frame[at]
            at += 1
            length |= (byte & 0x7F) << shift
            shift += 7
        return frame[at:end] if at + length - 1 == end else None

    def header_of(self, frame: memoryview) -> RequestHeader:
        known = self.header
        return RequestHeader(
            known.api_key, known.version, self.correlation_of(frame), known.client_id
        )

    @staticmethod
    def correlation_of(frame: memoryview) -> int:
        correlation_id: int = _CORRELATION_ID.unpack_from(frame, _CORRELATION_AT)[0]
        return correlation_id

    @property
    def answer_offsets_at(self) -> int:
        """The position of base offset, append time and log start in a response."""
        return SIZE_BYTES + _AFTER_CORRELATION - _CORRELATION_AT + len(self._answer_begin) + 6

    def answer(
        self, correlation_id: int, base_offset: int, append_time_ms: int, log_start_offset: int
    ) -> bytes:
        """The complete response with the offset of the records."""
        return self._answer.pack(
            self._answer_bytes,
            correlation_id,
            self._answer_begin,
            self.index,
            0,
            base_offset,
            append_time_ms,
            log_start_offset,
            _ANSWER_END,
        )


def repeated_produce(
    frame: memoryview, header: RequestHeader, body: ProduceRequest
) -> RepeatedProduce | None:
    """What recognises this request; None if it is not of the simple kind.

    Simple means: one batch to one partition, with a response, outside of transactions, in a
    flexible version, without tagged fields after the records.
    """
    if header.version < FLEXIBLE_FROM or body.transactional_id is not None or body.acks == 0:
        return None
    if len(body.topics) != 1 or len(body.topics[0].partitions) != 1:
        return None
    topic = body.topics[0]
    index, data = topic.partitions[0]
    if data is None:
        return None
    length = _varint(len(data) + 1)
    length_at = len(frame) - _END_BYTES - len(data) - len(length)
    records_at = length_at + len(length)
    if frame[length_at:records_at].tobytes() + frame[-_END_BYTES:].tobytes() != length + _END:
        return None
    # Without the records, which would keep the frame's memory.
    kept = ProduceTopic(topic.name, topic.topic_id, [])
    return RepeatedProduce(header, body, kept, index, bytes(frame[:length_at]))


def _varint(value: int) -> bytes:
    out = bytearray()
    output.unsigned_varint(out, value)
    return bytes(out)
