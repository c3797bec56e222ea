"""DescribeProducers (61), version 0: the producers of a partition, with open transactions."""

from millstream.broker.node.state import NodeState
from millstream.broker.requests.request import Request
from millstream.errors import KafkaCode, KafkaError
from millstream.wire.apis.describe_producers import (
    ActiveProducer,
    DescribeProducersPartition,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicResponse,
)


def handle(
    node: NodeState, request: Request, body: DescribeProducersRequest
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            DescribeProducersTopicResponse(
                name=topic.name,
                partitions=[_one(node, topic.name, index) for index in topic.partition_indexes],
            )
            for topic in body.topics
        ]
    )


def _one(node: NodeState, topic: str, index: int) -> DescribeProducersPartition:
    try:
        partition = node.partitions.get(topic, index)
        partition.require_online()
    except KafkaError as error:
        return DescribeProducersPartition(
            partition_index=index,
            error_code=error.code,
            error_message=error.message,
            active_producers=[],
        )
    return DescribeProducersPartition(
        partition_index=index,
        error_code=KafkaCode.NONE,
        error_message=None,
        active_producers=[
            ActiveProducer(
                producer_id=producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp_ms,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.transaction_first_offset,
            )
            for producer_id, producer in partition.log.producers.states
        ],
    )
