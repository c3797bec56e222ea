"""UnregisterBroker (64), version 0: forget a stopped node that has no replicas left.

Its options are deleted. The number of its last start stays: if a node with this id starts again,
no write of an earlier one may pass for its own.
"""

from millstream.broker.node.state import NodeState
from millstream.broker.node.topics import Topics
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.cluster.state import ClusterImage
from millstream.errors import KafkaCode, KafkaError
from millstream.wire.apis.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from millstream.wire.message import Message

HOLDS_NEXT_REQUEST = True


async def handle(
    node: NodeState,
    topics: Topics,
    permissions: Permissions,
    request: Request,
    body: UnregisterBrokerRequest,
) -> UnregisterBrokerResponse:
    try:
        check_forgettable(node.image, body.broker_id)
        await topics.replace_broker_configs(body.broker_id, {}, validate_only=False)
    except KafkaError as error:
        return UnregisterBrokerResponse(error_code=error.code, error_message=error.message)
    permissions.report_change(request, f"node {body.broker_id} unregistered")
    return UnregisterBrokerResponse(error_code=KafkaCode.NONE, error_message=None)


def refuse(request: Request, body: UnregisterBrokerRequest, code: KafkaCode) -> Message:
    return UnregisterBrokerResponse(error_code=code, error_message=None)


def check_forgettable(image: ClusterImage, broker_id: int) -> None:
    """Raises KafkaError."""
    if broker_id in image.brokers:
        raise KafkaError(
            KafkaCode.INVALID_REQUEST, f"node {broker_id} is alive: stop it before this"
        )
    if broker_id not in image.incarnations:
        raise KafkaError(KafkaCode.BROKER_ID_NOT_REGISTERED, f"there never was a node {broker_id}")
    held = [
        f"{topic.name}-{index}"
        for topic in image.topics.values()
        for index, state in enumerate(topic.partitions)
        if broker_id in state.replicas
    ]
    if held:
        raise KafkaError(
            KafkaCode.INVALID_REQUEST,
            f"node {broker_id} has replicas of {len(held)} partitions, as {held[0]}:"
            f" `millstream cluster decommission {broker_id}` moves them",
        )
