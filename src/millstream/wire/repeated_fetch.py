"""Recognises a Fetch that a consumer repeats, by comparison instead of decoding.

A consumer without a fetch session, as librdkafka's are, names all its partitions in each request.
Its requests for one topic have the same bytes before and after these partitions, except for the
correlation id. A frame with the same bytes there means the same, and only its partitions, which
all have the same length, are left to be read. A frame that differs is decoded like any other.
"""

import struct
from collections.abc import Sequence
from typing import Final

from millstream.errors import KafkaCode
from millstream.wire import output
from millstream.wire.fetch import (
    FLEXIBLE_FROM,
    READ_COMMITTED,
    TOPIC_IDS_FROM,
    FetchPartition,
    FetchRequest,
    FetchTopic,
)
from millstream.wire.headers import RequestHeader, response_header

_INT32: Final = struct.Struct(">i")
_CORRELATION_AT: Final = 4
_AFTER_CORRELATION: Final = 8
# Index, leader epoch, offset, last fetched epoch, log start, limit of bytes; and no tags.
_PARTITION: Final = struct.Struct(">iiqiqiB")
_TAGS_AT: Final = _PARTITION.size - 1
# After the partitions: no tags of the topic, no forgotten topics, no rack, no tags.
_END: Final = b"\0\1\1\0"
# A count of more bytes is left to the decoder.
PARTITIONS_MAX: Final = 126
# What a connection keeps begins with these bytes: the names of a topic and of a client, mostly.
BEFORE_BYTES_MAX: Final = 1 << 10
# An int, as an enum's member would be converted each time.
_NONE: Final = int(KafkaCode.NONE)
# Index, code, high watermark, last stable offset, log start, count of aborted transactions plus
# one, or zero, and no preferred replica.
_RESULT: Final = struct.Struct(">ihqqqBi")
# No tags of the topic and the response.
ANSWER_END: Final = b"\0\0"

# A partition as the request names it: as `_PARTITION`.
Named = tuple[int, int, int, int, int, int, int]


class RepeatedFetch:
    __slots__ = ("_answer_begin", "_before", "_no_aborted", "body", "header", "topic")

    def __init__(self, header: RequestHeader, body: FetchRequest, before: bytes) -> None:
        """`before` is the frame up to the count of partitions."""
        self.header = header
        # The partitions are different each time.
        self.body = body
        self.topic = topic = body.topics[0]
        self._before = before[:_CORRELATION_AT], before[_AFTER_CORRELATION:]
        self._no_aborted = 1 if body.isolation_level == READ_COMMITTED else 0
        out = response_header(header)
        # No throttling, no error, no session, one topic.
        out += bytes(10) + b"\2"
        if header.version >= TOPIC_IDS_FROM:
            out += topic.topic_id.bytes
        else:
            output.compact_string(out, topic.name)
        self._answer_begin = bytes(out)

    def partitions_of(self, frame: memoryview) -> Sequence[Named] | None:
        """The partitions, in order and each of them once, if the frame is this request again."""
        beginning, rest = self._before
        at = _AFTER_CORRELATION + len(rest)
        partitions_bytes = len(frame) - at - 1 - len(_END)
        if not 0 < partitions_bytes <= PARTITIONS_MAX * _PARTITION.size:
            return None
        # One copy of some hundred bytes: views are compared byte by byte.
        data = frame.tobytes()
        if not (
            data.startswith(beginning)
            and data.startswith(rest, _AFTER_CORRELATION)
            and data.endswith(_END)
        ):
            return None
        count = data[at] - 1
        at += 1
        if count * _PARTITION.size != partitions_bytes:
            return None
        end = at + partitions_bytes
        if any(data[at + _TAGS_AT : end : _PARTITION.size]):
            return None
        found = {one[0]: one for one in _PARTITION.iter_unpack(data[at:end])}
        return list(found.values()) if len(found) == count else None

    def body_of(self, partitions: Sequence[Named]) -> FetchRequest:
        """What the decoder makes of a request with these partitions."""
        body, topic = self.body, self.topic
        return FetchRequest(
            *(body.replica_id, body.replica_epoch, body.max_wait_ms, body.min_bytes),
            *(body.max_bytes, body.isolation_level, body.session_id, body.session_epoch),
            [FetchTopic(topic.name, topic.topic_id, [_decoded(one) for one in partitions])],
            [],
            body.rack_id,
        )

    def header_of(self, correlation_id: int) -> RequestHeader:
        known = self.header
        return RequestHeader(known.api_key, known.version, correlation_id, known.client_id)

    @staticmethod
    def correlation_of(frame: memoryview) -> int:
        correlation_id: int = _INT32.unpack_from(frame, _CORRELATION_AT)[0]
        return correlation_id

    def begin_answer(self, correlation_id: int, count: int) -> bytearray:
        """The response up to its first partition."""
        out = bytearray(self._answer_begin)
        _INT32.pack_into(out, _CORRELATION_AT, correlation_id)
        out.append(count + 1)
        return out

    def write_result(
        self,
        out: bytearray,
        index: int,
        high_watermark: int,
        last_stable_offset: int,
        log_start_offset: int,
        records_bytes: int,
    ) -> None:
        """A partition without an error, up to its records. Behind them follows a zero: no tags."""
        out += _RESULT.pack(
            index,
            _NONE,
            high_watermark,
            last_stable_offset,
            log_start_offset,
            self._no_aborted,
            -1,
        )
        output.unsigned_varint(out, records_bytes + 1)


def _decoded(one: Named) -> FetchPartition:
    index, epoch, offset, last_epoch, start, size, _ = one
    return FetchPartition(index, offset, size, epoch, last_epoch, start)


def repeated_fetch(
    frame: memoryview, header: RequestHeader, body: FetchRequest
) -> RepeatedFetch | None:
    """What recognises this request; None if it is not of the simple kind.

    Simple means: a consumer without session and rack, one topic, a flexible version, short names,
    and no tagged fields.
    """
    if header.version < FLEXIBLE_FROM or body.replica_id >= 0 or body.rack_id:
        return None
    if body.session_id or body.session_epoch != -1 or len(body.topics) != 1:
        return None
    partitions = body.topics[0].partitions
    count_at = len(frame) - len(_END) - _PARTITION.size * len(partitions) - 1
    if not _AFTER_CORRELATION < count_at <= BEFORE_BYTES_MAX:
        return None
    repeated = RepeatedFetch(header, body, bytes(frame[:count_at]))
    found = repeated.partitions_of(frame)
    if found is None or [_decoded(one) for one in found] != partitions:
        return None
    return repeated
