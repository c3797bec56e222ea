"""LastBatch (20001), version 0: the last batch committed for a group of producers.

The first request of a new run takes over the group; earlier runs are refused from then on.
"""

from collections.abc import Coroutine
from typing import Any

from millstream.broker.coordination.hosting import Coordinators
from millstream.broker.coordination.shards import shown
from millstream.broker.handlers.commit_group import admit
from millstream.broker.node.state import NodeState
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.coordinators.transactions.joint_commit import NO_BATCH, id_prefix, last_batch
from millstream.errors import KafkaCode, KafkaError
from millstream.security.acl import ResourceType
from millstream.wire.apis.last_batch import LastBatchRequest, LastBatchResponse


def handle(
    node: NodeState,
    coordination: Coordinators,
    permissions: Permissions,
    request: Request,
    body: LastBatchRequest,
) -> LastBatchResponse | Coroutine[Any, Any, LastBatchResponse]:
    try:
        permissions.require(request, ResourceType.TRANSACTIONAL_ID, id_prefix(body.group))
        if body.run:
            admit(node, coordination, body.group, request.connection.client)
        answer = coordination.transactions.shards.submit(
            body.group, lambda state, env: last_batch(state, body.group, body.run, env)
        )
    except KafkaError as error:
        return _refuse(error)
    return shown(answer, _show, _refuse)


def _show(number: int) -> LastBatchResponse:
    return LastBatchResponse(error_code=KafkaCode.NONE, error_message=None, last_batch=number)


def _refuse(error: KafkaError) -> LastBatchResponse:
    return LastBatchResponse(
        error_code=error.code, error_message=error.message, last_batch=NO_BATCH
    )
