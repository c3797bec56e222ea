"""ShareAcknowledge (79), versions 1-2: what became of records, without fetching others."""

from collections.abc import Coroutine
from typing import Any

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
from millstream.errors import KafkaCode, KafkaError
from millstream.wire.apis.share_acknowledge import (
    ShareAcknowledgePartitionResponse,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)


def handle(
    sharing: Sharing,
    node: NodeState,
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
        return _response(sharing, node, request, session, results)
    return _answer_later(sharing, node, request, body, session, results)


def _session(sharing: Sharing, key: SessionKey, epoch: int) -> ShareSession:
    if epoch == INITIAL_EPOCH:
        raise KafkaError(KafkaCode.INVALID_SHARE_SESSION_EPOCH)
    if epoch == FINAL_EPOCH:
        return sharing.sessions.require(key)
    return sharing.sessions.resume(key, epoch)


async def _answer_later(
    sharing: Sharing,
    node: NodeState,
    request: Request,
    body: ShareAcknowledgeRequest,
    session: ShareSession,
    results: Results | Coroutine[Any, Any, Results],
) -> ShareAcknowledgeResponse:
    if not isinstance(results, dict):
        results = await results
    if body.share_session_epoch == FINAL_EPOCH:
        await sharing.end_session(session)
    return _response(sharing, node, request, session, results)


def _response(
    sharing: Sharing,
    node: NodeState,
    request: Request,
    session: ShareSession,
    results: Results,
) -> ShareAcknowledgeResponse:
    topics: dict[object, ShareAcknowledgeTopicResponse] = {}
    leaders = []
    for where, error in results.items():
        topic = topics.setdefault(
            where.topic_id, ShareAcknowledgeTopicResponse(topic_id=where.topic_id, partitions=[])
        )
        leader = NOBODY
        if error is not NONE:
            state = node.image.topics_by_id.get(where.topic_id)
            name = None if state is None else state.name
            leader = current_leader(node, error.code, name, where.partition)
            leaders.append(leader)
        topic.partitions.append(
            ShareAcknowledgePartitionResponse(
                partition_index=where.partition,
                error_code=error.code,
                error_message=error.message,
                current_leader=leader,
            )
        )
    return ShareAcknowledgeResponse(
        error_code=KafkaCode.NONE,
        error_message=None,
        acquisition_lock_timeout_ms=sharing.partitions.limits_of(session.key.group_id).lock_ms,
        responses=list(topics.values()),
        node_endpoints=endpoints(node, request.listener, leaders),
    )


def _refuse(error: KafkaError) -> ShareAcknowledgeResponse:
    return ShareAcknowledgeResponse(
        error_code=error.code,
        error_message=error.message,
        acquisition_lock_timeout_ms=0,
        responses=[],
        node_endpoints=[],
    )
