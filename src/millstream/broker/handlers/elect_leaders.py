"""ElectLeaders (43), versions 0-2: the preferred replica, or whoever is there.

One node alone leads what it has, so no election is needed.
"""

from typing import TYPE_CHECKING, Final

from millstream.broker.requests.request import Request
from millstream.errors import KafkaCode, KafkaError
from millstream.model import TopicPartition
from millstream.wire.apis.elect_leaders import (
    ElectLeadersPartitionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopicResult,
)

if TYPE_CHECKING:
    from millstream.broker.broker import Broker

PREFERRED: Final = 0
UNCLEAN: Final = 1
KINDS_FROM: Final = 1


async def handle(
    broker: "Broker", request: Request, body: ElectLeadersRequest
) -> ElectLeadersResponse:
    # Before version 1 there was only one kind.
    kind = body.election_type if request.version >= KINDS_FROM else PREFERRED
    if kind not in (PREFERRED, UNCLEAN):
        return ElectLeadersResponse(
            error_code=KafkaCode.INVALID_REQUEST, replica_election_results=[]
        )
    if body.topic_partitions is None:
        return await _elect_all(broker, kind)
    return ElectLeadersResponse(
        error_code=KafkaCode.NONE,
        replica_election_results=[
            ElectLeadersTopicResult(
                topic=topic.topic,
                partition_result=[
                    await _elect(broker, kind, topic.topic, index) for index in topic.partitions
                ],
            )
            for topic in body.topic_partitions
        ],
    )


async def _elect_all(broker: "Broker", kind: int) -> ElectLeadersResponse:
    """Whatever needs one; as in Kafka, what needs none is left out."""
    results = []
    if broker.leaders is not None:
        for topic in list(broker.image.topics.values()):
            found = [
                await _elect(broker, kind, topic.name, index)
                for index in range(len(topic.partitions))
            ]
            needed = [each for each in found if each.error_code != KafkaCode.ELECTION_NOT_NEEDED]
            if needed:
                results.append(ElectLeadersTopicResult(topic=topic.name, partition_result=needed))
    return ElectLeadersResponse(error_code=KafkaCode.NONE, replica_election_results=results)


async def _elect(
    broker: "Broker", kind: int, topic: str, index: int
) -> ElectLeadersPartitionResult:
    if broker.leaders is None:
        return _one(broker, topic, index)
    where = TopicPartition(topic, index)
    code, message = KafkaCode.NONE, None
    try:
        if kind == PREFERRED:
            await broker.leaders.elect_preferred(where)
        else:
            await broker.leaders.elect_uncleanly(where)
    except KafkaError as error:
        code, message = error.code, error.message
    return ElectLeadersPartitionResult(partition_id=index, error_code=code, error_message=message)


def _one(broker: "Broker", topic: str, index: int) -> ElectLeadersPartitionResult:
    """One node alone."""
    code, message = KafkaCode.ELECTION_NOT_NEEDED, "the leader is the only replica"
    found = broker.partitions.find(topic, index)
    if found is None:
        code, message = KafkaCode.UNKNOWN_TOPIC_OR_PARTITION, "no such partition"
    elif found.offline_reason is not None:
        code, message = KafkaCode.PREFERRED_LEADER_NOT_AVAILABLE, found.offline_reason
    return ElectLeadersPartitionResult(partition_id=index, error_code=code, error_message=message)
