"""ElectLeaders (43), versions 0-2: one replica leads already, so no election is needed."""

from typing import TYPE_CHECKING, Final

from millstream.broker.request import Request
from millstream.errors import KafkaCode
from millstream.wire.messages import Struct

if TYPE_CHECKING:
    from millstream.broker.broker import Broker

PREFERRED: Final = 0
UNCLEAN: Final = 1


def handle(broker: "Broker", request: Request, body: Struct) -> Struct:
    if body.election_type not in (PREFERRED, UNCLEAN):
        return Struct(error_code=KafkaCode.INVALID_REQUEST, replica_election_results=[])
    if body.topic_partitions is None:
        # "Whatever needs one": nothing does, and Kafka leaves those out.
        return Struct(error_code=KafkaCode.NONE, replica_election_results=[])
    return Struct(
        error_code=KafkaCode.NONE,
        replica_election_results=[
            Struct(
                topic=topic.topic,
                partition_result=[_one(broker, topic.topic, i) for i in topic.partitions],
            )
            for topic in body.topic_partitions
        ],
    )


def _one(broker: "Broker", topic: str, index: int) -> Struct:
    code, message = KafkaCode.ELECTION_NOT_NEEDED, "the leader is the only replica"
    found = broker.partitions.find(topic, index)
    if found is None:
        code, message = KafkaCode.UNKNOWN_TOPIC_OR_PARTITION, "no such partition"
    elif found.offline_reason is not None:
        code, message = KafkaCode.PREFERRED_LEADER_NOT_AVAILABLE, found.offline_reason
    return Struct(partition_id=index, error_code=code, error_message=message)
