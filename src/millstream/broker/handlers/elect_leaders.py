"""ElectLeaders (43), versions 0-2: the preferred replica, or any that is alive.

A standalone node leads all its partitions and needs no election.
"""

from typing import Final

from millstream.broker.node.state import NodeState
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import Turns
from millstream.errors import KafkaCode, KafkaError
from millstream.model import TopicPartition
from millstream.wire.apis.elect_leaders import (
    ElectLeadersPartitionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopicResult,
)
from millstream.wire.message import Message

PREFERRED: Final = 0
UNCLEAN: Final = 1
KINDS_FROM: Final = 1


async def handle(
    node: NodeState, turns: Turns, request: Request, body: ElectLeadersRequest
) -> ElectLeadersResponse:
    # Before version 1 there was only one type.
    kind = body.election_type if request.version >= KINDS_FROM else PREFERRED
    if kind not in (PREFERRED, UNCLEAN):
        return ElectLeadersResponse(
            error_code=KafkaCode.INVALID_REQUEST, replica_election_results=[]
        )
    if body.topic_partitions is None:
        return await _elect_all(node, kind)
    return ElectLeadersResponse(
        error_code=KafkaCode.NONE,
        replica_election_results=[
            ElectLeadersTopicResult(
                topic=topic.topic,
                partition_result=[
                    await _elect(node, kind, topic.topic, index)
                    async for index in turns.each(request, dict.fromkeys(topic.partitions))
                ],
            )
            async for topic in turns.each(request, body.topic_partitions)
        ],
    )


def refuse(request: Request, body: ElectLeadersRequest, code: KafkaCode) -> Message:
    return ElectLeadersResponse(error_code=code, replica_election_results=[])


async def _elect_all(node: NodeState, kind: int) -> ElectLeadersResponse:
    """Every partition that needs an election. As in Kafka, the others are left out."""
    results = []
    for topic in list(node.image.topics.values()):
        found = [
            await _elect(node, kind, topic.name, index) for index in range(len(topic.partitions))
        ]
        needed = [each for each in found if each.error_code != KafkaCode.ELECTION_NOT_NEEDED]
        if needed:
            results.append(ElectLeadersTopicResult(topic=topic.name, partition_result=needed))
    return ElectLeadersResponse(error_code=KafkaCode.NONE, replica_election_results=results)


async def _elect(node: NodeState, kind: int, topic: str, index: int) -> ElectLeadersPartitionResult:
    where = TopicPartition(topic, index)
    code, message = KafkaCode.NONE, None
    try:
        if kind == PREFERRED:
            await node.cluster.elections.elect_preferred(where)
        else:
            await node.cluster.elections.elect_uncleanly(where)
    except KafkaError as error:
        code, message = error.code, error.message
    return ElectLeadersPartitionResult(partition_id=index, error_code=code, error_message=message)
