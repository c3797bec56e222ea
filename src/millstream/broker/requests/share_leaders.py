"""Who leads a partition now, for clients of share groups that asked the wrong node."""

from collections.abc import Iterable

from millstream.broker.node.state import NodeState
from millstream.errors import KafkaCode
from millstream.wire.apis.metadata import LeaderIdAndEpoch, NodeEndpoint

_MOVED = (KafkaCode.NOT_LEADER_OR_FOLLOWER, KafkaCode.FENCED_LEADER_EPOCH)
NOBODY = LeaderIdAndEpoch(leader_id=0, leader_epoch=0)


def current_leader(
    node: NodeState, code: KafkaCode, topic: str | None, index: int
) -> LeaderIdAndEpoch:
    if code not in _MOVED:
        return NOBODY
    state = None if topic is None else node.image.partition(topic, index)
    if state is None:
        return LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1)
    return LeaderIdAndEpoch(leader_id=state.leader, leader_epoch=state.leader_epoch)


def endpoints(
    node: NodeState, listener: str, leaders: Iterable[LeaderIdAndEpoch]
) -> list[NodeEndpoint]:
    wanted = {leader.leader_id for leader in leaders if leader is not NOBODY}
    if not wanted:
        return []
    return [
        NodeEndpoint(
            node_id=address.node_id, host=address.host, port=address.port, rack=address.rack
        )
        for address in node.cluster.brokers(listener)
        if address.node_id in wanted
    ]
