"""DescribeProducers (61), version 0: the producers of a partition, with open transactions."""

from collections.abc import Collection, Coroutine
from typing import Any

from millstream.broker.node.state import NodeState
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import TOO_LARGE, Turns, Weight, by_topic
from millstream.errors import KafkaCode, KafkaError
from millstream.security.acl import ResourceType
from millstream.wire.apis.describe_producers import (
    ActiveProducer,
    DescribeProducersPartition,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicResponse,
)


def handle(
    node: NodeState,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    body: DescribeProducersRequest,
) -> DescribeProducersResponse | Coroutine[Any, Any, DescribeProducersResponse]:
    return turns.prepare(
        request,
        lambda each: dict.fromkeys(
            each((topic.name, index) for topic in body.topics for index in topic.partition_indexes)
        ),
        lambda wanted: _answer_all(node, turns, permissions, request, wanted),
    )


def _answer_all(
    node: NodeState,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    wanted: Collection[tuple[str, int]],
) -> DescribeProducersResponse | Coroutine[Any, Any, DescribeProducersResponse]:
    def combine(
        partitions: list[DescribeProducersPartition],
    ) -> DescribeProducersResponse | Coroutine[Any, Any, DescribeProducersResponse]:
        named = zip((topic for topic, _ in wanted), partitions, strict=True)
        return turns.prepare(
            request,
            lambda each: [
                DescribeProducersTopicResponse(name=topic, partitions=found)
                for topic, found in each(by_topic(each(named)).items())
            ],
            lambda topics: DescribeProducersResponse(topics=topics),
        )

    return turns.answer_each(
        request,
        wanted,
        lambda where: _one(node, permissions, request, *where),
        combine,
        Weight(
            lambda partition: 20 + 40 * len(partition.active_producers),
            lambda where: _refuse(where[1], KafkaError(KafkaCode.INVALID_REQUEST, TOO_LARGE)),
        ),
    )


def _refuse(index: int, error: KafkaError) -> DescribeProducersPartition:
    return DescribeProducersPartition(
        partition_index=index,
        error_code=error.code,
        error_message=error.message,
        active_producers=[],
    )


def _one(
    node: NodeState, permissions: Permissions, request: Request, topic: str, index: int
) -> DescribeProducersPartition:
    try:
        permissions.require(request, ResourceType.TOPIC, topic)
        partition = node.partitions.get(topic, index)
        partition.require_online()
    except KafkaError as error:
        return _refuse(index, error)
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
