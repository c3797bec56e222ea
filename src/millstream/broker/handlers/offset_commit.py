"""OffsetCommit (8), versions 2-10: topics by id from version 10.

Reads the frame with a hand-written codec, because this group request arrives thousands of
times a second. A reply that waits for the disk is a future, not a task. A client that commits
the same partitions again gets a shortcut (`wire.repeated_commit`).
"""

import asyncio
from functools import partial
from typing import Final, Protocol

from millstream.broker.coordination.coordinators import GroupCoordinators
from millstream.broker.network.connection import Connection
from millstream.broker.network.replies import Pending, Pieces, Shortcut
from millstream.broker.node.state import NodeState
from millstream.broker.requests.admission import Admissions, CommitAdmission
from millstream.broker.requests.request import Request
from millstream.coordinators.groups import offsets
from millstream.coordinators.groups.offsets import CommitReply, CommitRequest
from millstream.errors import KafkaCode, KafkaError, ProtocolError
from millstream.replication.admission import Refusal
from millstream.wire.apis import offset_commit as messages
from millstream.wire.cursor import Cursor
from millstream.wire.headers import finish_frame, response_header
from millstream.wire.offset_commit import (
    TOPIC_IDS_FROM,
    OffsetCommitRequest,
    OffsetCommitTopic,
    read_offset_commit_request,
    write_offset_commit_response,
)
from millstream.wire.repeated_commit import RepeatedCommit, repeated_commit

READS_FRAME = True
KNOWS_MEMBER_EPOCHS_FROM: Final = 9
# The least that a committed offset takes: key, value and record header.
_RECORD_BYTES_MIN: Final = 50
_ELEMENTS_MIN: Final = 10_000
_FRAME_BYTES_MIN: Final = 1 << 20
OFFSET_COMMIT: Final = messages.OffsetCommitRequest.api.key


class Parts(Protocol):
    """The parts of the node that a commit uses."""

    @property
    def node(self) -> NodeState: ...
    @property
    def admissions(self) -> Admissions: ...
    @property
    def groups(self) -> GroupCoordinators: ...
    @property
    def counts(self) -> dict[int, int]: ...


def handle(parts: Parts, request: Request, cursor: Cursor) -> Pieces | Pending:
    if len(cursor.data) > _frame_bytes_max(parts.node):
        raise ProtocolError(f"an OffsetCommit of {len(cursor.data)} bytes")
    cursor.elements_left = min(cursor.elements_left, elements_max(parts.node))
    body = read_offset_commit_request(cursor, request.header.version)
    for topic in body.topics:
        _find_topic(parts, topic, request.header.version)
    names = [topic.name for topic in body.topics]
    admission = parts.admissions.of_commit(request.connection, body.group_id, names)
    if admission.refusal is None:
        _learn(parts, request, body, admission, cursor.data)
    commit = _commit_request(body, request.header.version)
    codes = _first_commit(parts, request, commit, admission, body.topics)
    if isinstance(codes, asyncio.Future):
        return Pending(codes, finish=partial(_answer_later, request, body.topics))
    return _answer(request, body.topics, codes)


def _frame_bytes_max(node: NodeState) -> int:
    """What is read on the loop. It is mostly metadata that the offsets topic has no room for."""
    return max(_FRAME_BYTES_MIN, node.config.int("message.max.bytes"))


def elements_max(node: NodeState) -> int:
    """No batch of the offsets topic holds more: reading them would keep other clients waiting."""
    return max(_ELEMENTS_MIN, node.config.int("message.max.bytes") // _RECORD_BYTES_MIN)


def _learn(
    parts: Parts,
    request: Request,
    body: OffsetCommitRequest,
    admission: CommitAdmission,
    frame: memoryview,
) -> None:
    """The second commit of a group member on a connection sets a shortcut for later ones."""
    connection = request.connection
    committer = (body.group_id, body.member_id, len(frame))
    if connection.last_request != committer:
        connection.last_request = committer
        return
    repeated = repeated_commit(frame, request.header, body)
    if repeated is None:
        connection.shortcut = None
        return
    commit = _commit_request(body, request.header.version)
    answer = partial(_commit_again, parts, repeated, commit, admission)
    connection.shortcut = Shortcut(answer, admission.generation)


def _commit_again(
    parts: Parts,
    repeated: RepeatedCommit,
    commit: CommitRequest,
    admission: CommitAdmission,
    connection: Connection,
    frame: memoryview,
) -> Pieces | Pending | None:
    """A commit of the same partitions as before; None for any other request."""
    topics = repeated.topics_of(frame)
    if topics is None:
        return None
    parts.counts[OFFSET_COMMIT] += 1
    for topic in topics:
        _find_topic(parts, topic, repeated.header.version)
    codes = _commit(
        parts,
        connection.client,
        commit,
        admission,
        topics,
        has_long_metadata=repeated.has_long_metadata,
    )
    if codes == repeated.all_good:
        return [repeated.answer(repeated.correlation_of(frame))]
    request = Request(repeated.header_of(frame), connection)
    if isinstance(codes, asyncio.Future):
        return Pending(codes, finish=partial(_answer_later, request, topics))
    return _answer(request, topics, codes)


def _commit_request(body: OffsetCommitRequest, version: int) -> CommitRequest:
    """The committing member; `_commit` fills in the offsets."""
    return CommitRequest(
        body.group_id,
        body.member_id,
        body.instance_id,
        body.generation,
        [],
        body.retention_ms,
        version >= KNOWS_MEMBER_EPOCHS_FROM,
    )


def _first_commit(
    parts: Parts,
    request: Request,
    commit: CommitRequest,
    admission: CommitAdmission,
    topics: list[OffsetCommitTopic],
) -> "CommitReply | asyncio.Future[CommitReply]":
    """One that may create its group. A repeated commit comes after it."""
    if admission.refusal is None:
        try:
            parts.groups.admit_group(commit.group_id, request.connection.client)
        except KafkaError as error:
            return _refused(topics, error)
    return _commit(parts, request.connection.client, commit, admission, topics)


def _commit(
    parts: Parts,
    client: str,
    commit: CommitRequest,
    admission: CommitAdmission,
    topics: list[OffsetCommitTopic],
    *,
    has_long_metadata: bool = True,
) -> "CommitReply | asyncio.Future[CommitReply]":
    if admission.refusal is not None:
        return _refused(topics, admission.refusal.error())
    for name, refusal in admission.denied_topics.items():
        _deny(topics, name, refusal)
    # `submit` decides before it returns, so the next commit may reuse the object.
    commit.topics = [(topic.name, topic.partitions) for topic in topics]
    try:
        if has_long_metadata:
            parts.groups.admit_metadata(commit.group_id, client, commit.topics)
        return parts.groups.submit(
            commit.group_id, lambda state, env: offsets.commit(state, commit, env)
        )
    except KafkaError as error:
        return _refused(topics, error)


def _deny(topics: list[OffsetCommitTopic], name: str, refusal: Refusal) -> None:
    for topic in topics:
        if topic.name == name:
            for one in topic.partitions:
                one.code = refusal.code


def _find_topic(parts: Parts, topic: OffsetCommitTopic, version: int) -> None:
    """Fill in the topic's name, and return the partitions that do not exist."""
    unknown = KafkaCode.UNKNOWN_TOPIC_OR_PARTITION
    if version >= TOPIC_IDS_FROM:
        found = parts.node.image.topics_by_id.get(topic.topic_id)
        if found is None:
            unknown = KafkaCode.UNKNOWN_TOPIC_ID
        else:
            topic.name = found.name
    else:
        found = parts.node.image.topics.get(topic.name)
    count = len(found.partitions) if found is not None else 0
    for one in topic.partitions:
        if not 0 <= one.partition < count:
            one.code = unknown


def _refused(topics: list[OffsetCommitTopic], error: KafkaError) -> CommitReply:
    return [[error.code] * len(topic.partitions) for topic in topics]


def _answer(request: Request, topics: list[OffsetCommitTopic], codes: CommitReply) -> Pieces:
    out = response_header(request.header)
    write_offset_commit_response(out, request.header.version, topics, codes)
    return [finish_frame(out)]


def _answer_later(
    request: Request, topics: list[OffsetCommitTopic], done: "asyncio.Future[CommitReply]"
) -> Pieces:
    try:
        codes = done.result()
    except KafkaError as error:
        codes = _refused(topics, error)
    return _answer(request, topics, codes)
