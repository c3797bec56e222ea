"""AddPartitionsToTxn (24), versions 0-5: 0-3 for clients; 4-5 for nodes, in bulk or to verify."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from millstream.broker.coordination.transactions import TransactionCoordinator, wait_for
from millstream.broker.node.state import NodeState
from millstream.broker.requests.pacing import Each
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.transaction_codes import add_partitions_code
from millstream.broker.requests.turns import Turns
from millstream.coordinators.decision import ProducerEpoch
from millstream.coordinators.transactions.decisions import EPOCH_PER_TRANSACTION
from millstream.errors import KafkaCode, KafkaError
from millstream.replication.admission import Refusal
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

Where = tuple[str, int]
Codes = Mapping[Where, KafkaCode]


async def handle(
    node: NodeState,
    transactions: TransactionCoordinator,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    body: AddPartitionsToTxnRequest,
) -> AddPartitionsToTxnResponse:
    version = request.version
    if version < BATCHED_FROM:
        producer = ProducerEpoch(body.v3_and_below_producer_id, body.v3_and_below_producer_epoch)
        topics = body.v3_and_below_topics
        transactional_id = body.v3_and_below_transactional_id
        wanted = await turns.prepared(request, lambda each: _wanted(each, topics))
        codes = await _refused(turns, permissions, request, transactional_id, wanted)
        # Without partitions there is no denial either, and a transaction would begin.
        if wanted and not codes:
            codes = await _add(
                node, transactions, turns, request, transactional_id, producer, wanted, 0
            )
        shown = await turns.prepared(request, lambda each: _results(each, topics, codes, version))
        if request.is_long:
            turns.free_soon(request, codes)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=shown)
    if request.is_long and request.connection.proved_node_id < 0:
        # Clients do not ask for several transactions, and have no reason to name so many.
        return AddPartitionsToTxnResponse(error_code=KafkaCode.CLUSTER_AUTHORIZATION_FAILED)
    all_wanted = await turns.prepared(
        request, lambda each: [_wanted(each, one.topics) for one in body.transactions]
    )
    all_codes = []
    async for one, wanted in turns.each(request, zip(body.transactions, all_wanted, strict=True)):
        producer = ProducerEpoch(one.producer_id, one.producer_epoch)
        if one.verify_only:
            codes = await _verify(transactions, one.transactional_id, producer, wanted)
        else:
            # A node asks on behalf of a producer whose first write adds the partition.
            codes = await _add(
                node,
                transactions,
                turns,
                request,
                one.transactional_id,
                producer,
                wanted,
                EPOCH_PER_TRANSACTION,
            )
        all_codes.append(codes)
    results = await turns.prepared(
        request,
        lambda each: [
            AddPartitionsToTxnResult(
                transactional_id=one.transactional_id,
                topic_results=_results(each, one.topics, codes, version),
            )
            for one, codes in zip(body.transactions, all_codes, strict=True)
        ],
    )
    if request.is_long:
        turns.free_soon(request, all_codes)
    return AddPartitionsToTxnResponse(error_code=KafkaCode.NONE, results_by_transaction=results)


def refuse(request: Request, body: AddPartitionsToTxnRequest, code: KafkaCode) -> Message:
    return AddPartitionsToTxnResponse(error_code=code)


def _wanted(each: Each, topics: Sequence[AddPartitionsToTxnTopic]) -> list[Where]:
    return list(each((topic.name, index) for topic in topics for index in topic.partitions))


async def _refused(
    turns: Turns,
    permissions: Permissions,
    request: Request,
    transactional_id: str,
    wanted: Sequence[Where],
) -> Codes:
    """Empty if everything is allowed. If one topic is not, none of the others is added."""
    denied = permissions.denial(request, ResourceType.TRANSACTIONAL_ID, transactional_id)
    if denied is not None:
        code = denied.code
        return {where: code async for where in turns.each(request, wanted)}
    denials: dict[str, Refusal | None] = {}
    async for name, _ in turns.each(request, wanted):
        if name not in denials:
            denials[name] = permissions.denial(request, ResourceType.TOPIC, name)
    if not any(denials.values()):
        return {}
    return {
        where: KafkaCode.OPERATION_NOT_ATTEMPTED if found is None else found.code
        async for where in turns.each(request, wanted)
        for found in [denials[where[0]]]
    }


async def _add(
    node: NodeState,
    transactions: TransactionCoordinator,
    turns: Turns,
    request: Request,
    transactional_id: str,
    producer: ProducerEpoch,
    wanted: Sequence[Where],
    client_version: int,
) -> Codes:
    codes = {
        where: (
            KafkaCode.UNKNOWN_TOPIC_OR_PARTITION
            if node.image.partition(*where) is None
            else KafkaCode.OPERATION_NOT_ATTEMPTED
        )
        async for where in turns.each(request, wanted)
    }
    if any(code is KafkaCode.UNKNOWN_TOPIC_OR_PARTITION for code in codes.values()):
        return codes
    try:
        if not transactional_id:
            raise KafkaError(KafkaCode.INVALID_REQUEST)
        code = await wait_for(
            transactions.add(
                transactional_id, producer, _partitions(codes), client_version=client_version
            )
        )
    except KafkaError as error:
        code = error.code
    return dict.fromkeys(codes, code)


async def _verify(
    transactions: TransactionCoordinator,
    transactional_id: str,
    producer: ProducerEpoch,
    wanted: Sequence[Where],
) -> Codes:
    try:
        return await wait_for(transactions.verify(transactional_id, producer, _partitions(wanted)))
    except KafkaError as error:
        return dict.fromkeys(wanted, error.code)


def _partitions(wanted: Iterable[Where]) -> dict[str, frozenset[int]]:
    found: dict[str, set[int]] = {}
    for name, index in wanted:
        found.setdefault(name, set()).add(index)
    return {name: frozenset(indexes) for name, indexes in found.items()}


def _results(
    each: Each, topics: Sequence[AddPartitionsToTxnTopic], codes: Codes, version: int
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index,
                    partition_error_code=add_partitions_code(codes[topic.name, index], version),
                )
                for index in each(topic.partitions)
            ],
        )
        for topic in topics
    ]
