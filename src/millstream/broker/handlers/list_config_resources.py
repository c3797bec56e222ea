"""ListConfigResources (74), versions 0-1: topics, nodes, groups that have own options, and
subscriptions to client metrics. Version 0 lists only the latter.
"""

from collections.abc import Callable
from typing import Final

from millstream.broker.node.state import NodeState
from millstream.broker.requests import config_view
from millstream.broker.requests.request import Request
from millstream.errors import KafkaCode
from millstream.wire.apis.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    ListedConfigResource,
)
from millstream.wire.message import Message

TYPES_FROM: Final = 1


def handle(
    node: NodeState, request: Request, body: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    wanted = body.resource_types or list(_NAMES)
    if request.version < TYPES_FROM:
        wanted = [config_view.CLIENT_METRICS]
    if not set(wanted) <= _NAMES.keys():
        return ListConfigResourcesResponse(
            error_code=KafkaCode.UNSUPPORTED_VERSION, config_resources=[]
        )
    return ListConfigResourcesResponse(
        error_code=KafkaCode.NONE,
        config_resources=[
            ListedConfigResource(resource_name=name, resource_type=resource_type)
            for resource_type in dict.fromkeys(wanted)
            for name in _NAMES[resource_type](node)
        ],
    )


def refuse(request: Request, body: ListConfigResourcesRequest, code: KafkaCode) -> Message:
    return ListConfigResourcesResponse(error_code=code, config_resources=[])


def _node_names(node: NodeState) -> list[str]:
    return [str(broker_id) for broker_id in sorted(node.image.brokers)]


_NAMES: Final[dict[int, Callable[[NodeState], list[str]]]] = {
    config_view.TOPIC: lambda node: sorted(node.image.topics),
    config_view.BROKER: _node_names,
    config_view.BROKER_LOGGER: _node_names,
    config_view.CLIENT_METRICS: lambda node: sorted(node.image.client_metrics),
    config_view.GROUP: lambda node: sorted(node.image.group_overrides),
}
