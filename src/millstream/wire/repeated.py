"""Recognises a Produce that a client repeats, by comparison instead of decoding.

Requests of one producer to one topic have the same bytes up to the count of partitions, except
for the correlation id. These bytes are decoded once, by `wire.produce`, and kept; a frame that
begins with the same bytes means the same, and only its partitions are left to be read. A frame
that differs anywhere is no repetition, whatever is wrong with it, and is decoded like any other.
"""

import struct
from collections.abc import Sequence
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
_INT32: Final = struct.Struct(">i")
# After the partitions: no tags of the topic and the request.
_END_BYTES: Final = 2
# A partition, and the length of its records plus one, which are longer than that number.
_INDEX_AND_LENGTH: Final = struct.Struct(">iBBB")
# A count or a length of more bytes is left to the decoder.
_COUNT_MAX: Final = 126
# What a connection keeps for each partition begins with these bytes: the names of a topic and of a
# client, mostly.
BEFORE_BYTES_MAX: Final = 1 << 10
# Responses of as many lengths are known; each takes up to 24 KB.
_LAYOUTS_MAX: Final = 16
# A partition without an error, which has no record errors, no message and no tags.
_RESULT: Final = "ihqqq3s"
_RESULT_END: Final = b"\1\0\0"
# No tags of the topic, no throttling, no tags.
_ANSWER_END: Final = bytes(6)

# A partition and where its records are in the log: index, base offset, append time, log start.
Placed = tuple[int, int, int, int]


class RepeatedProduce:
    __slots__ = (
        "_answer_begin",
        "_layouts",
        "before_partitions",
        "header",
        "is_acks_all",
        "timeout_ms",
        "topic",
    )

    def __init__(
        self,
        header: RequestHeader,
        body: ProduceRequest,
        topic: ProduceTopic,
        before_partitions: bytes,
    ) -> None:
        """`before_partitions` is the frame up to the count of partitions."""
        self.header = header
        self.is_acks_all = body.acks == ACKS_ALL
        self.timeout_ms = body.timeout_ms
        self.topic = topic
        self.before_partitions = before_partitions
        written = topic.topic_id.bytes
        if header.version < TOPIC_IDS_FROM:
            name = topic.name.encode()
            written = _varint(len(name) + 1) + name
        self._answer_begin = b"\0\2" + written
        # Of a response, by the count of its partitions.
        self._layouts: dict[int, struct.Struct] = {}

    def partitions_of(self, frame: memoryview) -> list[tuple[int, memoryview]] | None:
        """The partitions and their records, if the frame is this request once more."""
        return partitions_of(frame, self.before_partitions)

    def header_of(self, frame: memoryview) -> RequestHeader:
        known = self.header
        return RequestHeader(
            known.api_key, known.version, self.correlation_of(frame), known.client_id
        )

    @staticmethod
    def correlation_of(frame: memoryview) -> int:
        correlation_id: int = _CORRELATION_ID.unpack_from(frame, _CORRELATION_AT)[0]
        return correlation_id

    def before_records(self, index: int) -> bytes:
        """The beginning of a frame with one partition, up to the length of its records."""
        return self.before_partitions + b"\2" + _INT32.pack(index)

    @property
    def answer_offsets_at(self) -> int:
        """The position of base offset, append time and log start in a response for one
        partition."""
        return SIZE_BYTES + _CORRELATION_ID.size + len(self._answer_begin) + 1 + 6

    def answer(self, correlation_id: int, placed: Sequence[Placed]) -> bytes:
        """The complete response, with the offsets of the records."""
        count = len(placed)
        layout = self._layouts.get(count)
        if layout is None:
            if len(self._layouts) >= _LAYOUTS_MAX:
                del self._layouts[next(iter(self._layouts))]
            layout = self._layouts[count] = self._layout(count)
        fields: list[int | bytes] = []
        for index, base_offset, append_time_ms, log_start_offset in placed:
            fields += index, 0, base_offset, append_time_ms, log_start_offset, _RESULT_END
        return layout.pack(
            layout.size - SIZE_BYTES,
            correlation_id,
            self._answer_begin,
            count + 1,
            *fields,
            _ANSWER_END,
        )

    def _layout(self, count: int) -> struct.Struct:
        return struct.Struct(f">ii{len(self._answer_begin)}sB{_RESULT * count}{len(_ANSWER_END)}s")


def partitions_of(frame: memoryview, before: bytes) -> list[tuple[int, memoryview]] | None:
    """The partitions and their records, if the frame begins with `before`, which ends at the
    count of partitions, except for the correlation id."""
    at = len(before)
    # One copy of some dozen bytes: views are compared byte by byte.
    begins = frame[:at].tobytes()
    if (
        len(begins) < at
        or begins[:_CORRELATION_AT] != before[:_CORRELATION_AT]
        or begins[_AFTER_CORRELATION:] != before[_AFTER_CORRELATION:]
    ):
        return None
    end = len(frame) - _END_BYTES
    found = []
    try:
        count = frame[at] - 1
        if not 0 < count <= _COUNT_MAX or frame[end] or frame[end + 1]:
            return None
        at += 1
        for _ in range(count):
            index, length, second, third = _INDEX_AND_LENGTH.unpack_from(frame, at)
            at += 5
            # Three bytes are enough for two megabytes.
            if length >= 0x80:
                if third >= 0x80 and second >= 0x80:
                    return None
                length = length & 0x7F | (second & 0x7F) << 7
                at += 1
                if second >= 0x80:
                    length |= third << 14
                    at += 1
            records_end = at + length - 1
            # Without records, with tags, or longer than what is there.
            if length < 2 or records_end >= end or frame[records_end]:
                return None
            found.append((index, frame[at:records_end]))
            at = records_end + 1
    except (IndexError, struct.error):
        return None
    return found if at == end else None


def repeated_produce(
    frame: memoryview, header: RequestHeader, body: ProduceRequest
) -> RepeatedProduce | None:
    """What recognises this request; None if it is not of the simple kind.

    Simple means: one topic, a batch for each partition, with a response, outside of
    transactions, in a flexible version, without tagged fields in the body, and with short names.
    """
    if header.version < FLEXIBLE_FROM or body.transactional_id is not None or body.acks == 0:
        return None
    if len(body.topics) != 1:
        return None
    topic = body.topics[0]
    partitions_bytes = 0
    for _, data in topic.partitions:
        if not data:
            return None
        partitions_bytes += 4 + len(_varint(len(data) + 1)) + len(data) + 1
    count_at = len(frame) - _END_BYTES - partitions_bytes - 1
    if count_at > BEFORE_BYTES_MAX:
        return None
    # Without the records, which would keep the frame's memory.
    kept = ProduceTopic(topic.name, topic.topic_id, [])
    repeated = RepeatedProduce(header, body, kept, bytes(frame[:count_at]))
    return repeated if repeated.partitions_of(frame) == topic.partitions else None


def _varint(value: int) -> bytes:
    out = bytearray()
    output.unsigned_varint(out, value)
    return bytes(out)
