"""Topics, partitions and brokers as Metadata and its relatives show them."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from millstream.cluster.state import BrokerState, PartitionState, TopicState
from millstream.errors import KafkaCode
from millstream.model import TopicId
from millstream.wire.apis.metadata import MetadataBroker, MetadataPartition, MetadataTopic

if TYPE_CHECKING:
    from millstream.broker.broker import Broker


def brokers(broker: "Broker", listener: str) -> list[MetadataBroker]:
    """The brokers at the addresses of the listener that was asked; whoever has none by that
    name is not shown there."""
    if broker.replicas is not None:
        return _at_listener(broker.image.brokers.values(), listener)
    host, port = broker.advertised(listener)
    rack = broker.config.optional_string("broker.rack")
    return [MetadataBroker(node_id=broker.node_id, host=host, port=port, rack=rack)]


def departed(broker: "Broker", listener: str) -> list[MetadataBroker]:
    """Those that died a moment ago: clients do better if nodes go after their leaderships."""
    membership = broker.membership
    return [] if membership is None else _at_listener(membership.departed(), listener)


def _at_listener(nodes: Iterable[BrokerState], listener: str) -> list[MetadataBroker]:
    return [
        MetadataBroker(node_id=one.id, host=endpoint.host, port=endpoint.port, rack=one.rack)
        for one in nodes
        if (endpoint := one.endpoint(listener)) is not None
    ]


def describe(broker: "Broker", topic: TopicState) -> MetadataTopic:
    return MetadataTopic(
        error_code=KafkaCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[partition(broker, topic, i) for i in range(len(topic.partitions))],
    )


def partition(broker: "Broker", topic: TopicState, index: int) -> MetadataPartition:
    state = topic.partitions[index]
    if broker.replicas is not None:
        return _in_cluster(broker, state, index)
    found = broker.partitions.find(topic.name, index)
    is_online = found is not None and found.offline_reason is None
    return MetadataPartition(
        error_code=KafkaCode.NONE if is_online else KafkaCode.LEADER_NOT_AVAILABLE,
        partition_index=index,
        leader_id=state.leader if is_online else -1,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        offline_replicas=[] if is_online else list(state.replicas),
    )


def _in_cluster(broker: "Broker", state: PartitionState, index: int) -> MetadataPartition:
    live = broker.image.brokers
    has_leader = state.leader in live and not _is_suspect(broker, state.leader)
    return MetadataPartition(
        error_code=KafkaCode.NONE if has_leader else KafkaCode.LEADER_NOT_AVAILABLE,
        partition_index=index,
        leader_id=state.leader if has_leader else -1,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        offline_replicas=[replica for replica in state.replicas if replica not in live],
    )


def _is_suspect(broker: "Broker", node_id: int) -> bool:
    # A client that is told of a leader which has just died asks again only much later.
    membership = broker.membership
    return membership is not None and membership.is_suspect(node_id)


def controller_id(broker: "Broker") -> int:
    """-1 while the cluster has none."""
    return broker.node_id if broker.replicas is None else broker.image.controller_id


def absent(name: str | None, topic_id: TopicId, code: KafkaCode) -> MetadataTopic:
    return MetadataTopic(
        error_code=code,
        name=name,
        topic_id=topic_id,
        is_internal=False,
        partitions=[],
    )
