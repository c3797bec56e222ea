"""FindCoordinator (10), versions 0-6: on one node, this one."""

from typing import TYPE_CHECKING, Final

from millstream.broker.request import Request
from millstream.errors import KafkaCode
from millstream.wire.messages import Struct

if TYPE_CHECKING:
    from millstream.broker.broker import Broker

GROUP: Final = 0
TRANSACTION: Final = 1
BATCHED_FROM: Final = 4


def handle(broker: "Broker", request: Request, body: Struct) -> Struct:
    keys = body.coordinator_keys if request.version >= BATCHED_FROM else [body.key]
    found = [_coordinator(broker, request, body.key_type, key) for key in keys]
    if request.version >= BATCHED_FROM:
        return Struct(coordinators=found)
    return found[0]


def _coordinator(broker: "Broker", request: Request, key_type: int, key: str) -> Struct:
    if key_type not in (GROUP, TRANSACTION):
        return Struct(
            key=key,
            error_code=KafkaCode.INVALID_REQUEST,
            error_message=f"unknown coordinator type {key_type}",
            node_id=-1,
            host="",
            port=-1,
        )
    host, port = broker.advertised(request.listener)
    return Struct(
        key=key,
        error_code=KafkaCode.NONE,
        error_message=None,
        node_id=broker.node_id,
        host=host,
        port=port,
    )
