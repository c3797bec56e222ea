"""AddPartitionsToTxn (24), versions 0-5: 0-3 for clients; 4-5 for nodes, in bulk or to verify."""

from collections.abc import Mapping, Sequence
from typing import Final

from millstream.broker.coordination.transactions import TransactionCoordinator, wait_for
from millstream.broker.node.state import NodeState
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.transaction_codes import add_partitions_code
from millstream.coordinators.decision import ProducerEpoch
from millstream.coordinators.transactions.decisions import EPOCH_PER_TRANSACTION
from millstream.errors import KafkaCode, KafkaError
from millstream.security.acl import ResourceType
from millstream.wire.apis.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from millstream.wire.message import Message

HOLDS_NEXT_REQUEST = True

BATCHED_FROM: Final = 4

Codes = Mapping[tuple[str, int], KafkaCode]


async def handle(
    node: NodeState,
    transactions: TransactionCoordinator,
    permissions: Permissions,
    request: Request,
    body: AddPartitionsToTxnRequest,
) -> AddPartitionsToTxnResponse:
    version = request.version
    if version < BATCHED_FROM:
        producer = ProducerEpoch(body.v3_and_below_producer_id, body.v3_and_below_producer_epoch)
        topics = body.v3_and_below_topics
        transactional_id = body.v3_and_below_transactional_id
        refused = _refused(permissions, request, transactional_id, topics)
        codes = refused or await _add(node, transactions, transactional_id, producer, topics, 0)
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=_results(topics, codes, version)
        )
    results = []
    for one in body.transactions:
        producer = ProducerEpoch(one.producer_id, one.producer_epoch)
        if one.verify_only:
            codes = await _verify(transactions, one.transactional_id, producer, one.topics)
        else:
            # A node asks on behalf of a producer whose first write adds the partition.
            codes = await _add(
                node,
                transactions,
                one.transactional_id,
                producer,
                one.topics,
                EPOCH_PER_TRANSACTION,
            )
        results.append(
            AddPartitionsToTxnResult(
                transactional_id=one.transactional_id,
                topic_results=_results(one.topics, codes, version),
            )
        )
    return AddPartitionsToTxnResponse(error_code=KafkaCode.NONE, results_by_transaction=results)


def refuse(request: Request, body: AddPartitionsToTxnRequest, code: KafkaCode) -> Message:
    return AddPartitionsToTxnResponse(error_code=code)


def _refused(
    permissions: Permissions,
    request: Request,
    transactional_id: str,
    topics: Sequence[AddPartitionsToTxnTopic],
) -> Codes:
    """Empty if everything is allowed. If one topic is not, none of the others is added."""
    wanted = [(topic.name, index) for topic in topics for index in topic.partitions]
    denied = permissions.denial(request, ResourceType.TRANSACTIONAL_ID, transactional_id)
    if denied is not None:
        return dict.fromkeys(wanted, denied.code)
    denials = {
        topic.name: permissions.denial(request, ResourceType.TOPIC, topic.name) for topic in topics
    }
    if not any(denials.values()):
        return {}
    return {
        where: KafkaCode.OPERATION_NOT_ATTEMPTED if found is None else found.code
        for where in wanted
        for found in [denials[where[0]]]
    }


async def _add(
    node: NodeState,
    transactions: TransactionCoordinator,
    transactional_id: str,
    producer: ProducerEpoch,
    topics: Sequence[AddPartitionsToTxnTopic],
    client_version: int,
) -> Codes:
    wanted = [(topic.name, index) for topic in topics for index in topic.partitions]
    unknown = {where for where in wanted if node.image.partition(*where) is None}
    if unknown:
        return {
            where: (
                KafkaCode.UNKNOWN_TOPIC_OR_PARTITION
                if where in unknown
                else KafkaCode.OPERATION_NOT_ATTEMPTED
            )
            for where in wanted
        }
    try:
        if not transactional_id:
            raise KafkaError(KafkaCode.INVALID_REQUEST)
        code = await wait_for(
            transactions.add(
                transactional_id, producer, _partitions(topics), client_version=client_version
            )
        )
    except KafkaError as error:
        code = error.code
    return dict.fromkeys(wanted, code)


async def _verify(
    transactions: TransactionCoordinator,
    transactional_id: str,
    producer: ProducerEpoch,
    topics: Sequence[AddPartitionsToTxnTopic],
) -> Codes:
    try:
        return await wait_for(transactions.verify(transactional_id, producer, _partitions(topics)))
    except KafkaError as error:
        return {(topic.name, index): error.code for topic in topics for index in topic.partitions}


def _partitions(topics: Sequence[AddPartitionsToTxnTopic]) -> dict[str, frozenset[int]]:
    found: dict[str, set[int]] = {}
    for topic in topics:
        found.setdefault(topic.name, set()).update(topic.partitions)
    return {name: frozenset(indexes) for name, indexes in found.items()}


def _results(
    topics: Sequence[AddPartitionsToTxnTopic], codes: Codes, version: int
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index,
                    partition_error_code=add_partitions_code(codes[topic.name, index], version),
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]
