"""Recognises an OffsetCommit that a consumer repeats, by comparison instead of decoding.

A consumer commits the same partitions again and again: only the correlation id, the offsets
and the leader epochs change. A frame of the same length with the same bytes elsewhere means
the same; one that differs is decoded like any other.
"""

import struct
from typing import Final

from millstream.errors import KafkaCode
from millstream.wire.headers import SIZE_BYTES, RequestHeader, finish_frame, response_header
from millstream.wire.offset_commit import (
    SHORT_METADATA,
    OffsetCommitRequest,
    OffsetCommitTopic,
    OffsetToCommit,
    write_offset_commit_response,
)

_INT32: Final = struct.Struct(">i")
_OFFSET_AND_EPOCH: Final = struct.Struct(">qi")
_CORRELATION_AT: Final = 4
_AFTER_CORRELATION: Final = 8
# What is kept takes some twenty times as much.
FRAME_BYTES_MAX: Final = 16 << 10


class RepeatedCommit:
    __slots__ = (
        "_answer",
        "_frame_bytes",
        "_parts",
        "all_good",
        "body",
        "has_long_metadata",
        "header",
    )

    def __init__(self, header: RequestHeader, body: OffsetCommitRequest, frame: bytes) -> None:
        self.header = header
        # The response if nothing is wrong.
        self.all_good = [[KafkaCode.NONE] * len(topic.partitions) for topic in body.topics]
        out = response_header(header)
        write_offset_commit_response(out, header.version, body.topics, self.all_good)
        answer = bytes(finish_frame(out))
        self._answer = answer[:SIZE_BYTES], answer[SIZE_BYTES + _INT32.size :]
        self.body = body
        # Only then does the room for it have to be checked.
        self.has_long_metadata = any(
            len(one.metadata) > SHORT_METADATA for topic in body.topics for one in topic.partitions
        )
        self._frame_bytes = len(frame)
        # The positions of the bytes that do not change, and these bytes.
        starts = [_AFTER_CORRELATION, *(at + _OFFSET_AND_EPOCH.size for at in body.offsets_at)]
        ends = [*body.offsets_at, len(frame)]
        self._parts = [(0, frame[:_CORRELATION_AT])]
        self._parts += [(at, frame[at:end]) for at, end in zip(starts, ends, strict=True)]

    def topics_of(self, frame: memoryview) -> list[OffsetCommitTopic] | None:
        """What to commit, if the frame is this request with other offsets."""
        if len(frame) != self._frame_bytes:
            return None
        data = frame.tobytes()
        for at, part in self._parts:
            if not data.startswith(part, at):
                return None
        offsets_at = iter(self.body.offsets_at)
        topics = []
        for topic in self.body.topics:
            partitions = []
            for one in topic.partitions:
                offset, leader_epoch = _OFFSET_AND_EPOCH.unpack_from(data, next(offsets_at))
                partitions.append(OffsetToCommit(one.partition, offset, leader_epoch, one.metadata))
            topics.append(OffsetCommitTopic(topic.name, topic.topic_id, partitions))
        return topics

    def header_of(self, frame: memoryview) -> RequestHeader:
        known = self.header
        correlation_id = self.correlation_of(frame)
        return RequestHeader(known.api_key, known.version, correlation_id, known.client_id)

    @staticmethod
    def correlation_of(frame: memoryview) -> int:
        correlation_id: int = _INT32.unpack_from(frame, _CORRELATION_AT)[0]
        return correlation_id

    def answer(self, correlation_id: int) -> bytes:
        """The complete response without errors."""
        before, after = self._answer
        return before + _INT32.pack(correlation_id) + after


def repeated_commit(
    frame: memoryview, header: RequestHeader, body: OffsetCommitRequest
) -> RepeatedCommit | None:
    """What recognises this request; None for a large one, and for the old versions, which are not
    flexible."""
    if len(frame) > FRAME_BYTES_MAX or not body.offsets_at:
        return None
    return RepeatedCommit(header, body, bytes(frame))
