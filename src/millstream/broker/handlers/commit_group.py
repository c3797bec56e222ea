"""CommitGroup (20000), version 0: one commit for the transactions of many producers.

Their transactional ids are `millstream:<group>:<member>`. A batch number is committed once;
a repeated one gets `already_committed`. Members that are not named are aborted. A run that
another run has replaced is refused.
"""

from collections.abc import Coroutine
from typing import Any, Final

from millstream.broker.coordination.hosting import Coordinators
from millstream.broker.coordination.shards import shown
from millstream.broker.node.state import NodeState
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.coordinators.decision import ProducerEpoch
from millstream.coordinators.transactions.joint_commit import (
    NO_BATCH,
    GroupReply,
    Member,
    commit_group,
    id_prefix,
)
from millstream.errors import KafkaCode, KafkaError
from millstream.security.acl import ResourceType
from millstream.wire.apis.commit_group import CommitGroupRequest, CommitGroupResponse

# More do not fit into one batch of the transactions topic, and are not looked at.
_MEMBERS_MAX: Final = 10_000


def handle(
    node: NodeState,
    coordination: Coordinators,
    permissions: Permissions,
    request: Request,
    body: CommitGroupRequest,
) -> CommitGroupResponse | Coroutine[Any, Any, CommitGroupResponse]:
    if len(body.members) > _MEMBERS_MAX:
        text = f"a commit of {len(body.members)} transactions; {_MEMBERS_MAX} are possible"
        return _refuse(KafkaError(KafkaCode.INVALID_REQUEST, text))
    members = [
        Member(one.transactional_id, ProducerEpoch(one.producer_id, one.producer_epoch))
        for one in body.members
    ]
    try:
        permissions.require(request, ResourceType.TRANSACTIONAL_ID, id_prefix(body.group))
        admit(node, coordination, body.group, request.connection.client)
        answer = coordination.transactions.shards.submit(
            body.group,
            lambda state, env: commit_group(state, body.group, body.run, body.batch, members, env),
        )
    except KafkaError as error:
        return _refuse(error)
    return shown(answer, _show, _refuse)


def admit(node: NodeState, coordination: Coordinators, group: str, client: str) -> None:
    """Raises KafkaError where the group is new, and the client has begun too many; where it is not
    here, or not yet, nothing counts."""
    shard = coordination.transactions.shards.shard_for(group)
    shard.require_active()
    if group not in shard.state.batches:
        coordination.creations.admit(client, group, now_ms=node.now_ms())


def _show(reply: GroupReply) -> CommitGroupResponse:
    return CommitGroupResponse(
        error_code=KafkaCode.NONE,
        error_message=None,
        already_committed=reply.is_repeated,
        last_batch=reply.last_batch,
    )


def _refuse(error: KafkaError) -> CommitGroupResponse:
    return CommitGroupResponse(
        error_code=error.code,
        error_message=error.message,
        already_committed=False,
        last_batch=NO_BATCH,
    )
