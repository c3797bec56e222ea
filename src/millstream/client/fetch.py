"""Fetch as those who send it write and read it: flexible versions, by hand.

12 names topics, from 13 on their ids are sent, so that a topic which was deleted and created
again is never taken for the old one. From 15 on a follower's id and incarnation travel in a
tag. No sessions: every request names all its partitions, and what the other side remembers of
it can never be out of step.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from millstream.errors import ProtocolError
from millstream.wire import output
from millstream.wire.cursor import Cursor
from millstream.wire.fetch import FetchPartition

BY_NAME: Final = 12
BY_ID: Final = 13
# What followers send: `ReplicaState` in a tag.
BY_FOLLOWERS: Final = 16
_STATE_FROM: Final = 15

_HEAD = struct.Struct(">iiibii")
_PARTITION = struct.Struct(">iiqiqiB")
_REPLICA = struct.Struct(">BBBiqB")
_RESULT = struct.Struct(">ihqqq")
_NO_SESSION: Final = (0, -1)
_CONSUMER: Final = -1
_REPLICA_TAG: Final = 1
_DIVERGING_TAG: Final = 0

# A topic by its name or its id, whichever the version sends.
Topic = str | UUID


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """How long a node may wait for how much, and what it shows."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int = 0


@dataclass(slots=True)
class Fetched:
    """A node's answer about one partition; `records` is a view of the frame."""

    topic: Topic
    index: int
    code: int
    high_watermark: int
    log_start_offset: int
    # Producer id and first offset of each aborted transaction, where the answer has any.
    aborted: list[tuple[int, int]]
    records: memoryview
    diverging_epoch: int = -1
    diverging_offset: int = -1


def write_fetch(
    out: bytearray,
    version: int,
    topics: Iterable[tuple[Topic, list[FetchPartition]]],
    limits: FetchLimits,
    *,
    replica: tuple[int, int] | None = None,
) -> None:
    """The body of a request; `replica` is the id and the epoch of the follower that asks."""
    if version < _STATE_FROM:
        output.int32(out, _CONSUMER)
    out += _HEAD.pack(
        limits.max_wait_ms,
        limits.min_bytes,
        limits.max_bytes,
        limits.isolation_level,
        *_NO_SESSION,
    )
    listed = list(topics)
    output.compact_array_count(out, len(listed))
    for topic, partitions in listed:
        if isinstance(topic, UUID):
            out += topic.bytes
        else:
            output.compact_string(out, topic)
        output.compact_array_count(out, len(partitions))
        for one in partitions:
            out += _PARTITION.pack(
                one.index,
                one.current_leader_epoch,
                one.offset,
                one.last_fetched_epoch,
                one.log_start_offset,
                one.max_bytes,
                0,
            )
        out.append(0)
    # No topics to forget; no rack.
    output.compact_array_count(out, 0)
    output.compact_string(out, "")
    if replica is None:
        out.append(0)
    else:
        assert version >= _STATE_FROM
        out += _REPLICA.pack(1, _REPLICA_TAG, _REPLICA.size - 3, *replica, 0)


def read_fetched(cursor: Cursor, version: int) -> Iterator[Fetched]:
    """Raises ProtocolError for an answer that is none, RefusedFetch for a refusal as a whole."""
    cursor.int32()
    code = cursor.int16()
    if code != 0:
        raise RefusedFetch(code)
    cursor.int32()
    for _ in range(cursor.compact_array_count()):
        topic: Topic = cursor.uuid() if version >= BY_ID else cursor.compact_string()
        for _ in range(cursor.compact_array_count()):
            yield _read_one(cursor, topic)
        cursor.skip_tags()
    cursor.skip_tags()


class RefusedFetch(ProtocolError):
    """The node refuses a fetch as a whole, whatever its partitions."""

    def __init__(self, code: int) -> None:
        super().__init__(f"a fetch is answered with error {code}")
        self.code = code


def _read_one(cursor: Cursor, topic: Topic) -> Fetched:
    index, code, high_watermark, _, log_start_offset = cursor.unpack(_RESULT)
    aborted = []
    for _ in range(cursor.compact_array_count()):
        aborted.append((cursor.int64(), cursor.int64()))
        cursor.skip_tags()
    cursor.int32()
    records = cursor.compact_nullable_bytes()
    result = Fetched(
        topic,
        index,
        code,
        high_watermark,
        log_start_offset,
        aborted,
        memoryview(b"") if records is None else records,
    )
    for tag, size in cursor.tags():
        end = cursor.position + size
        if tag == _DIVERGING_TAG:
            result.diverging_epoch, result.diverging_offset = cursor.int32(), cursor.int64()
        cursor.take(end - cursor.position)
    return result
