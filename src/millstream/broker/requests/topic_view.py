"""Topics, partitions and brokers as Metadata and similar APIs show them."""

from millstream.broker.node.cluster import NodeAddress
from millstream.broker.node.state import NodeState
from millstream.broker.requests.kept_partitions import KeptPartitions
from millstream.cluster.state import NO_LEADER, TopicState
from millstream.errors import KafkaCode
from millstream.model import TopicId
from millstream.wire.apis.metadata import MetadataBroker, MetadataPartition, MetadataTopic


def broker(address: NodeAddress) -> MetadataBroker:
    return MetadataBroker(
        node_id=address.node_id, host=address.host, port=address.port, rack=address.rack
    )


def describe(node: NodeState, kept: KeptPartitions, topic: TopicState) -> MetadataTopic:
    def partitions() -> list[MetadataPartition]:
        return [partition(node, topic, i) for i in range(len(topic.partitions))]

    return MetadataTopic(
        error_code=KafkaCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=kept.of(topic, node.cluster.seen_nodes(), partitions),
    )


def partition(node: NodeState, topic: TopicState, index: int) -> MetadataPartition:
    state = topic.partitions[index]
    leader = node.cluster.reachable_leader(topic, index)
    code = KafkaCode.LEADER_NOT_AVAILABLE if leader == NO_LEADER else KafkaCode.NONE
    return MetadataPartition(
        error_code=code,
        partition_index=index,
        leader_id=leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        offline_replicas=node.cluster.offline_replicas(topic, index),
    )


def absent(name: str | None, topic_id: TopicId, code: KafkaCode) -> MetadataTopic:
    return MetadataTopic(
        error_code=code,
        name=name,
        topic_id=topic_id,
        is_internal=False,
        partitions=[],
    )
