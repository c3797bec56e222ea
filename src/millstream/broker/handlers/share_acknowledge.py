"""ShareAcknowledge (79), versions 1-2: what became of records, without fetching others."""

from collections.abc import Coroutine
from typing import Any, Final

from millstream.broker.coordination.share_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    SessionKey,
    ShareSession,
    Where,
)
from millstream.broker.coordination.sharing import Sharing
from millstream.broker.node.state import NodeState
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.share_acknowledgements import (
    NONE,
    Asked,
    Results,
    begin,
    check_size,
    session_key,
    store,
)
from millstream.broker.requests.share_leaders import NOBODY, current_leader, endpoints
from millstream.broker.requests.turns import Turns
from millstream.errors import KafkaCode, KafkaError
from millstream.model import TopicId
from millstream.wire.apis.metadata import LeaderIdAndEpoch
from millstream.wire.apis.share_acknowledge import (
    ShareAcknowledgePartitionResponse,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)

# More are answered in several turns.
_PARTITIONS_AT_ONCE_MAX: Final = 200


def handle(
    sharing: Sharing,
    node: NodeState,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    body: ShareAcknowledgeRequest,
) -> ShareAcknowledgeResponse | Coroutine[Any, Any, ShareAcknowledgeResponse]:
    try:
        key = session_key(permissions, request, body.group_id, body.member_id)
        check_size(len(body.topics))
        check_size(sum(len(topic.partitions) for topic in body.topics))
        rows = [row for topic in body.topics for row in topic.partitions]
        check_size(len(rows), sum(len(row.acknowledgement_batches) for row in rows))
        session = _session(sharing, key, body.share_session_epoch)
    except KafkaError as error:
        return _refuse(error)
    asked = Asked(
        {
            Where(topic.topic_id, row.partition_index): row.acknowledgement_batches
            for topic in body.topics
            for row in topic.partitions
        },
        body.is_renew_ack,
    )
    begun = begin(sharing, node, permissions, request, key, asked)
    results = store(sharing.partitions, begun)
    if isinstance(results, dict) and body.share_session_epoch != FINAL_EPOCH:
        return _response(sharing, node, turns, request, session, results)
    return _answer_later(sharing, node, turns, request, body, session, results)


def _session(sharing: Sharing, key: SessionKey, epoch: int) -> ShareSession:
    if epoch == INITIAL_EPOCH:
        raise KafkaError(KafkaCode.INVALID_SHARE_SESSION_EPOCH)
    if epoch == FINAL_EPOCH:
        return sharing.sessions.require(key)
    return sharing.sessions.resume(key, epoch)


async def _answer_later(
    sharing: Sharing,
    node: NodeState,
    turns: Turns,
    request: Request,
    body: ShareAcknowledgeRequest,
    session: ShareSession,
    results: Results | Coroutine[Any, Any, Results],
) -> ShareAcknowledgeResponse:
    if not isinstance(results, dict):
        results = await results
    if body.share_session_epoch == FINAL_EPOCH:
        await sharing.end_session(session)
    response = _response(sharing, node, turns, request, session, results)
    return response if isinstance(response, ShareAcknowledgeResponse) else await response


def _response(
    sharing: Sharing,
    node: NodeState,
    turns: Turns,
    request: Request,
    session: ShareSession,
    results: Results,
) -> ShareAcknowledgeResponse | Coroutine[Any, Any, ShareAcknowledgeResponse]:
    rows = _Rows(node)
    if len(results) > _PARTITIONS_AT_ONCE_MAX:
        return _response_in_turns(sharing, turns, request, session, results, rows)
    for where, error in results.items():
        rows.add(where, error)
    return rows.response(sharing, request, session)


async def _response_in_turns(
    sharing: Sharing,
    turns: Turns,
    request: Request,
    session: ShareSession,
    results: Results,
    rows: "_Rows",
) -> ShareAcknowledgeResponse:
    async for where, error in turns.each_in_line(request, results.items()):
        rows.add(where, error)
    return rows.response(sharing, request, session)


class _Rows:
    def __init__(self, node: NodeState) -> None:
        self._node = node
        self._topics: dict[TopicId, ShareAcknowledgeTopicResponse] = {}
        self._leaders: list[LeaderIdAndEpoch] = []

    def add(self, where: Where, error: KafkaError) -> None:
        topic = self._topics.get(where.topic_id)
        if topic is None:
            topic = ShareAcknowledgeTopicResponse(topic_id=where.topic_id, partitions=[])
            self._topics[where.topic_id] = topic
        leader = NOBODY
        if error is not NONE:
            state = self._node.image.topics_by_id.get(where.topic_id)
            name = None if state is None else state.name
            leader = current_leader(self._node, error.code, name, where.partition)
            self._leaders.append(leader)
        topic.partitions.append(
            ShareAcknowledgePartitionResponse(
                partition_index=where.partition,
                error_code=error.code,
                error_message=error.message,
                current_leader=leader,
            )
        )

    def response(
        self, sharing: Sharing, request: Request, session: ShareSession
    ) -> ShareAcknowledgeResponse:
        lock_ms = sharing.partitions.limits_of(session.key.group_id).lock_ms
        return ShareAcknowledgeResponse(
            error_code=KafkaCode.NONE,
            error_message=None,
            acquisition_lock_timeout_ms=lock_ms,
            responses=list(self._topics.values()),
            node_endpoints=endpoints(self._node, request.listener, self._leaders),
        )


def _refuse(error: KafkaError) -> ShareAcknowledgeResponse:
    return ShareAcknowledgeResponse(
        error_code=error.code,
        error_message=error.message,
        acquisition_lock_timeout_ms=0,
        responses=[],
        node_endpoints=[],
    )
