"""FindCoordinator (10), versions 0-6: on a standalone node, this node; in a cluster, the
leader of the partition that holds the group, the transactional id or the share partition.

The first request for a group creates the offsets topic, the first one for a transactional
id the transactions topic, the first one for a share partition the share state topic.
"""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from millstream.broker.coordination.coordinators import GroupCoordinators
from millstream.broker.coordination.hosting import Coordinators
from millstream.broker.coordination.transactions import TransactionCoordinator
from millstream.broker.node.state import NodeState
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import Turns
from millstream.errors import KafkaCode, KafkaError
from millstream.security.acl import CLUSTER_NAME, ResourceType
from millstream.wire.apis.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    # Only nodes with share groups need it at run time.
    from millstream.broker.coordination.share_coordinator import ShareCoordinator

GROUP: Final = 0
TRANSACTION: Final = 1
SHARE: Final = 2
BATCHED_FROM: Final = 4
_RESOURCES: Final = {GROUP: ResourceType.GROUP, TRANSACTION: ResourceType.TRANSACTIONAL_ID}


def handle(
    node: NodeState,
    coordination: Coordinators,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    body: FindCoordinatorRequest,
) -> FindCoordinatorResponse | Coroutine[Any, Any, FindCoordinatorResponse]:
    shards = _shards(coordination, body.key_type)
    if shards is not None and not shards.has_topic:
        return _create_first(node, coordination, turns, permissions, request, body)
    no_problem = KafkaError(KafkaCode.NONE)
    return _find(node, coordination, turns, permissions, request, body, no_problem)


def _shards(
    coordination: Coordinators, key_type: int
) -> "GroupCoordinators | TransactionCoordinator | ShareCoordinator | None":
    if key_type == GROUP:
        return coordination.groups
    if key_type == SHARE:
        return coordination.sharing.coordinator
    return coordination.transactions if key_type == TRANSACTION else None


async def _create_first(
    node: NodeState,
    coordination: Coordinators,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    body: FindCoordinatorRequest,
) -> FindCoordinatorResponse:
    problem = KafkaError(KafkaCode.NONE)
    try:
        shards = _shards(coordination, body.key_type)
        assert shards is not None
        await shards.ensure_topic()
    except KafkaError as error:
        problem = error.kept()
    answer = _find(node, coordination, turns, permissions, request, body, problem)
    return answer if isinstance(answer, FindCoordinatorResponse) else await answer


def _find(
    node: NodeState,
    coordination: Coordinators,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    body: FindCoordinatorRequest,
    problem: KafkaError,
) -> FindCoordinatorResponse | Coroutine[Any, Any, FindCoordinatorResponse]:
    keys = body.coordinator_keys if request.version >= BATCHED_FROM else [body.key]
    if body.key_type not in (GROUP, TRANSACTION, SHARE):
        text = f"unknown coordinator type {body.key_type}"
        problem = KafkaError(KafkaCode.INVALID_REQUEST, text)

    def answer(key: str) -> Coordinator:
        denied = None
        if body.key_type in _RESOURCES:
            denied = permissions.denial(request, _RESOURCES[body.key_type], key)
        elif body.key_type == SHARE:
            denied = permissions.denial(request, ResourceType.CLUSTER, CLUSTER_NAME)
        why = problem if denied is None else denied.error()
        return _coordinator(node, coordination, request, body.key_type, key, why)

    return turns.prepare(
        request,
        lambda each: dict.fromkeys(each(keys)),
        lambda wanted: turns.answer_each(
            request, wanted, answer, lambda found: _answer(request, found)
        ),
    )


def _answer(request: Request, found: list[Coordinator]) -> FindCoordinatorResponse:
    if request.version >= BATCHED_FROM:
        return FindCoordinatorResponse(coordinators=found)
    [one] = found
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


def _coordinator(
    node: NodeState,
    coordination: Coordinators,
    request: Request,
    key_type: int,
    key: str,
    problem: KafkaError,
) -> Coordinator:
    if problem.code is not KafkaCode.NONE:
        return _unknown(key, problem)
    coordinator = _shards(coordination, key_type)
    assert coordinator is not None
    leader = coordinator.shards.leader_of(key)
    for address in node.cluster.brokers(request.listener):
        if address.node_id == leader:
            return _known(key, leader, address.host, address.port)
    return _unknown(key, KafkaError(KafkaCode.COORDINATOR_NOT_AVAILABLE))


def _known(key: str, node_id: int, host: str, port: int) -> Coordinator:
    return Coordinator(
        key=key,
        error_code=KafkaCode.NONE,
        error_message=None,
        node_id=node_id,
        host=host,
        port=port,
    )


def _unknown(key: str, problem: KafkaError) -> Coordinator:
    return Coordinator(
        key=key,
        error_code=problem.code,
        error_message=problem.message,
        node_id=-1,
        host="",
        port=-1,
    )
