"""TxnOffsetCommit (28), versions 0-5: offsets that take effect with the transaction's commit.

From 3 on, the group member is checked as well. From 5 on, this request adds the offsets
partition to the transaction; before that, AddOffsetsToTxn must have added the group.
"""

from collections.abc import Mapping, Sequence

from millstream.broker.coordination.coordinators import GroupCoordinators
from millstream.broker.coordination.transactions import TransactionCoordinator, wait_for
from millstream.broker.handlers.add_offsets_to_txn import offsets_partition
from millstream.broker.handlers.offset_commit import elements_max
from millstream.broker.node.state import NodeState
from millstream.broker.requests.pacing import Each
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.transaction_codes import OFFSET_COMMIT_ADDS_FROM, offset_commit_code
from millstream.broker.requests.turns import Turns
from millstream.coordinators.codecs.transactions import Partitions
from millstream.coordinators.decision import ProducerEpoch
from millstream.coordinators.groups import offsets
from millstream.coordinators.groups.offsets import CommitReply, CommitRequest
from millstream.errors import KafkaCode, KafkaError, ProtocolError
from millstream.replication.admission import Refusal
from millstream.security.acl import ResourceType
from millstream.wire.apis.txn_offset_commit import (
    TxnOffsetCommitPartitionResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitTopic,
    TxnOffsetCommitTopicResponse,
)
from millstream.wire.offset_commit import OffsetToCommit

HOLDS_NEXT_REQUEST = True


async def handle(
    node: NodeState,
    groups: GroupCoordinators,
    transactions: TransactionCoordinator,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    body: TxnOffsetCommitRequest,
) -> TxnOffsetCommitResponse:
    named = sum(len(topic.partitions) for topic in body.topics)
    if named > elements_max(node):
        raise ProtocolError(f"a TxnOffsetCommit of {named} offsets")
    producer = ProducerEpoch(body.producer_id, body.producer_epoch)
    denials: dict[str, Refusal] = {}
    allowed: list[TxnOffsetCommitTopic] = []
    try:
        permissions.require(request, ResourceType.TRANSACTIONAL_ID, body.transactional_id)
        permissions.require(request, ResourceType.GROUP, body.group_id)
        async for topic in turns.each(request, body.topics):
            denied = permissions.denial(request, ResourceType.TOPIC, topic.name)
            if denied is None:
                allowed.append(topic)
            else:
                denials[topic.name] = denied
        wanted = [_wanted(node, topic) async for topic in turns.each(request, allowed)]
        if not any(one.code is KafkaCode.NONE for _, rows in wanted for one in rows):
            # Nothing is left to commit, and a transaction would begin.
            refused = [[one.code for one in rows] for _, rows in wanted]
            return await _answer(turns, request, body, denials, refused)
        partitions = offsets_partition(groups, body.group_id)
        # Last, so that nothing can end the transaction between the check and the append.
        await _check(transactions, request.version, body.transactional_id, producer, partitions)
        groups.admit_group(body.group_id, request.connection.client)
        groups.admit_metadata(body.group_id, request.connection.client, wanted)
        codes = await _commit(groups, body, wanted, producer)
    except KafkaError as error:
        code = offset_commit_code(error.code, request.version)
        codes = [
            [code] * len(topic.partitions)
            async for topic in turns.each(request, body.topics)
            if topic.name not in denials
        ]
    return await _answer(turns, request, body, denials, codes)


async def _answer(
    turns: Turns,
    request: Request,
    body: TxnOffsetCommitRequest,
    denials: Mapping[str, Refusal],
    allowed: CommitReply,
) -> TxnOffsetCommitResponse:
    """`allowed` are the codes of the topics that are not denied."""
    found = iter(allowed)
    topics = await turns.prepared(
        request,
        lambda each: [
            _topic(
                each,
                topic,
                next(found) if denied is None else [denied.code] * len(topic.partitions),
            )
            for topic in body.topics
            for denied in [denials.get(topic.name)]
        ],
    )
    return TxnOffsetCommitResponse(topics=topics)


def _topic(
    each: Each, topic: TxnOffsetCommitTopic, codes: Sequence[KafkaCode]
) -> TxnOffsetCommitTopicResponse:
    return TxnOffsetCommitTopicResponse(
        name=topic.name,
        partitions=[
            TxnOffsetCommitPartitionResponse(partition_index=one.partition_index, error_code=code)
            for one, code in each(zip(topic.partitions, codes, strict=True))
        ],
    )


async def _check(
    transactions: TransactionCoordinator,
    version: int,
    transactional_id: str,
    producer: ProducerEpoch,
    partitions: Partitions,
) -> None:
    """Raises KafkaError unless the offsets are part of the open transaction."""
    coordinator = transactions
    ask = (
        coordinator.add_anywhere
        if version >= OFFSET_COMMIT_ADDS_FROM
        else coordinator.verify_anywhere
    )
    before = coordinator.markers(producer, partitions)
    found = await wait_for(ask(transactional_id, producer, partitions))
    for code in found.values() if isinstance(found, dict) else ():
        if code is not KafkaCode.NONE:
            raise KafkaError(code)
    # Another request may have ended the transaction while we waited.
    coordinator.check_open(transactional_id, producer, partitions, before=before)


async def _commit(
    groups: GroupCoordinators,
    body: TxnOffsetCommitRequest,
    topics: list[tuple[str, list[OffsetToCommit]]],
    producer: ProducerEpoch,
) -> CommitReply:
    wanted = CommitRequest(
        group_id=body.group_id,
        member_id=body.member_id,
        instance_id=body.group_instance_id,
        generation=body.generation_id,
        topics=topics,
    )
    return await wait_for(
        groups.submit(
            body.group_id,
            lambda state, env: offsets.commit_in_transaction(state, wanted, producer, env),
        )
    )


def _wanted(
    node: NodeState,
    topic: TxnOffsetCommitTopic,
) -> tuple[str, list[OffsetToCommit]]:
    found = node.image.topics.get(topic.name)
    count = 0 if found is None else len(found.partitions)
    return topic.name, [
        OffsetToCommit(
            one.partition_index,
            one.committed_offset,
            one.committed_leader_epoch,
            one.committed_metadata or "",
            KafkaCode.NONE
            if 0 <= one.partition_index < count
            else KafkaCode.UNKNOWN_TOPIC_OR_PARTITION,
        )
        for one in topic.partitions
    ]
