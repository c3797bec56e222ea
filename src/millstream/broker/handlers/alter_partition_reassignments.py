"""AlterPartitionReassignments (45), versions 0-1: on one node only "stay here" is possible."""

from typing import TYPE_CHECKING

from millstream.broker.request import Request
from millstream.errors import KafkaCode
from millstream.wire.messages import Struct

if TYPE_CHECKING:
    from millstream.broker.broker import Broker


def handle(broker: "Broker", request: Request, body: Struct) -> Struct:
    return Struct(
        allow_replication_factor_change=body.allow_replication_factor_change,
        error_code=KafkaCode.NONE,
        error_message=None,
        responses=[
            Struct(
                name=topic.name,
                partitions=[_one(broker, topic.name, wanted) for wanted in topic.partitions],
            )
            for topic in body.topics
        ],
    )


def _one(broker: "Broker", topic: str, wanted: Struct) -> Struct:
    code, message = KafkaCode.NONE, None
    if broker.partitions.find(topic, wanted.partition_index) is None:
        code, message = KafkaCode.UNKNOWN_TOPIC_OR_PARTITION, "no such partition"
    elif wanted.replicas is None:
        code, message = KafkaCode.NO_REASSIGNMENT_IN_PROGRESS, "nothing to cancel"
    elif list(wanted.replicas) != [broker.node_id]:
        code = KafkaCode.INVALID_REPLICA_ASSIGNMENT
        message = f"broker {broker.node_id} is the only one"
    return Struct(partition_index=wanted.partition_index, error_code=code, error_message=message)
