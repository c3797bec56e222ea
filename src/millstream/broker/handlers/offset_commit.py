"""OffsetCommit (8), versions 2-10: topics by id from version 10 on.

Sees the frame itself, with a codec of its own: this is the group request that comes
thousands of times a second. An answer that waits for the disk is a future, not a task.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from millstream.broker.replies import Pending, Pieces
from millstream.broker.request import Request
from millstream.coordinators import offsets
from millstream.coordinators.offsets import CommitReply, CommitRequest
from millstream.errors import KafkaCode, KafkaError
from millstream.wire.cursor import Cursor
from millstream.wire.headers import finish_frame, response_header
from millstream.wire.offset_commit import (
    TOPIC_IDS_FROM,
    OffsetCommitRequest,
    OffsetCommitTopic,
    read_offset_commit_request,
    write_offset_commit_response,
)

if TYPE_CHECKING:
    from millstream.broker.broker import Broker

KNOWS_MEMBER_EPOCHS_FROM: Final = 9


def handle(broker: "Broker", request: Request, cursor: Cursor) -> Pieces | Pending:
    version = request.header.version
    body = read_offset_commit_request(cursor, version)
    for topic in body.topics:
        _find_topic(broker, topic, version)
    commit = CommitRequest(
        body.group_id,
        body.member_id,
        body.instance_id,
        body.generation,
        [(topic.name, topic.partitions) for topic in body.topics],
        body.retention_ms,
        version >= KNOWS_MEMBER_EPOCHS_FROM,
    )
    try:
        answer = broker.coordinators.submit(
            body.group_id, lambda state, env: offsets.commit(state, commit, env)
        )
    except KafkaError as error:
        return _answer(request, body, _refused(body, error))
    if isinstance(answer, asyncio.Future):
        return Pending(_answer_later(request, body, answer))
    return _answer(request, body, answer)


def _find_topic(broker: "Broker", topic: OffsetCommitTopic, version: int) -> None:
    """Fill in the topic's name, and say which partitions there are none of."""
    unknown = KafkaCode.UNKNOWN_TOPIC_OR_PARTITION
    if version >= TOPIC_IDS_FROM:
        found = broker.image.topics_by_id.get(topic.topic_id)
        if found is None:
            unknown = KafkaCode.UNKNOWN_TOPIC_ID
        else:
            topic.name = found.name
    else:
        found = broker.image.topics.get(topic.name)
    count = len(found.partitions) if found is not None else 0
    for one in topic.partitions:
        if not 0 <= one.partition < count:
            one.code = unknown


def _refused(body: OffsetCommitRequest, error: KafkaError) -> CommitReply:
    return [[error.code] * len(topic.partitions) for topic in body.topics]


def _answer(request: Request, body: OffsetCommitRequest, codes: CommitReply) -> Pieces:
    out = response_header(request.header)
    write_offset_commit_response(out, request.header.version, body.topics, codes)
    return [finish_frame(out)]


def _answer_later(
    request: Request, body: OffsetCommitRequest, answer: "asyncio.Future[CommitReply]"
) -> "asyncio.Future[Pieces]":
    answered: asyncio.Future[Pieces] = asyncio.get_running_loop().create_future()

    def show(done: "asyncio.Future[CommitReply]") -> None:
        if answered.done():
            return
        error = done.exception()
        if error is None:
            answered.set_result(_answer(request, body, done.result()))
        elif isinstance(error, KafkaError):
            answered.set_result(_answer(request, body, _refused(body, error)))
        else:
            answered.set_exception(error)

    answer.add_done_callback(show)
    return answered
