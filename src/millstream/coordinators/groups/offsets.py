"""Committed offsets: which member may commit, what is returned, and when they expire.

An offset expires `offsets.retention.minutes` after its commit, in a classic group at the earliest
so long after the group became empty, and never while a member reads its topic (`expired`). Old
clients may give a time of their own.
"""

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Final

from millstream.coordinators.classic import rebalance
from millstream.coordinators.classic.group import ClassicGroup, ClassicState
from millstream.coordinators.codecs.changes import CommittedOffset, OffsetChange
from millstream.coordinators.consumer.group import ConsumerGroup
from millstream.coordinators.decision import Decision, Env, ProducerEpoch
from millstream.coordinators.groups.state import GroupOffsets, ShardState
from millstream.coordinators.share.group import ShareGroup
from millstream.coordinators.streams.group import StreamsGroup
from millstream.coordinators.streams.offsets import check_commit
from millstream.errors import KafkaCode, KafkaError
from millstream.lazy_dataclass import dataclass
from millstream.wire.offset_commit import SHORT_METADATA, OffsetToCommit

# By topic, what is to be committed in its partitions.
TopicOffsets = Sequence[tuple[str, Sequence[OffsetToCommit]]]


@dataclass(slots=True)
class CommitRequest:
    group_id: str
    member_id: str
    instance_id: str | None
    # The generation of a classic member, the epoch of one of the consumer protocol.
    generation: int
    topics: list[tuple[str, list[OffsetToCommit]]]
    retention_ms: int = -1
    # From OffsetCommit 9 on, clients know the errors of the consumer protocol.
    knows_member_epochs: bool = True


# Python 3.11 looks up an enum member in Python code, which is too slow for every commit.
_NONE: Final = KafkaCode.NONE
_EMPTY: Final = ClassicState.EMPTY
# The last time that a record can hold.
_NEVER_MS: Final = 2**63 - 1

# For each topic of the request, in order, a code for each partition.
CommitReply = list[list[KafkaCode]]


def commit(state: ShardState, request: CommitRequest, env: Env) -> Decision[CommitReply]:
    group = state.groups.get(request.group_id)
    decision: Decision[CommitReply] = Decision()
    if group is not None:
        if isinstance(group, ClassicGroup):
            _check_classic_member(group, request)
            _keep_committer_alive(group, request.member_id, env, decision)
        else:
            _check_member(group, request)
    elif request.generation >= 0:
        raise KafkaError(
            KafkaCode.GROUP_ID_NOT_FOUND
            if request.knows_member_epochs
            else KafkaCode.ILLEGAL_GENERATION
        )
    _take_offsets(request, env, decision)
    return decision


def commit_in_transaction(
    state: ShardState, request: CommitRequest, producer: ProducerEpoch, env: Env
) -> Decision[CommitReply]:
    """Offsets that count once the producer's transaction is committed."""
    group = state.groups.get(request.group_id)
    # Clients before TxnOffsetCommit 3 do not send a member id; then anyone may commit.
    is_anonymous = request.generation < 0 and not request.member_id
    if isinstance(group, ClassicGroup):
        if not is_anonymous:
            _check_classic_member(group, request)
    elif group is not None:
        if not is_anonymous:
            _check_transaction_member(group, request)
    elif request.generation >= 0:
        raise KafkaError(KafkaCode.ILLEGAL_GENERATION)
    decision: Decision[CommitReply] = Decision(transaction=producer)
    _take_offsets(request, env, decision)
    return decision


def _take_offsets(request: CommitRequest, env: Env, decision: Decision[CommitReply]) -> None:
    now_ms = env.now_ms
    expire_ms = min(now_ms + request.retention_ms, _NEVER_MS) if request.retention_ms >= 0 else -1
    metadata_length_max = env.settings.offset_metadata_length_max
    reply: CommitReply = []
    for topic, wanted in request.topics:
        codes = []
        for one in wanted:
            code = one.code
            if code is _NONE and len(one.metadata) > metadata_length_max:
                code = KafkaCode.OFFSET_METADATA_TOO_LARGE
            codes.append(code)
            if code is _NONE:
                value = CommittedOffset(
                    one.offset, one.leader_epoch, one.metadata, now_ms, expire_ms
                )
                decision.records.append(OffsetChange(request.group_id, topic, one.partition, value))
        reply.append(codes)
    decision.reply = reply


def grown_metadata(held: GroupOffsets, topics: TopicOffsets, *, length_max: int) -> int:
    """By how much the metadata is longer than what is there. What is as short as clients write it
    does not count: an offset takes as much without it; nor what is too long to be kept."""
    grown = 0
    for topic, wanted in topics:
        for one in wanted:
            length = len(one.metadata)
            if SHORT_METADATA < length <= length_max and one.code is _NONE:
                known = held.get(topic, {}).get(one.partition)
                before = 0 if known is None else len(known.metadata)
                grown += max(length - max(before, SHORT_METADATA), 0)
    return grown


def _check_member(group: ConsumerGroup | ShareGroup | StreamsGroup, request: CommitRequest) -> None:
    if isinstance(group, ConsumerGroup):
        _check_consumer_member(
            group, request.member_id, request.generation, request.knows_member_epochs
        )
        return
    if isinstance(group, ShareGroup):
        raise _no_offsets(group)
    if not request.knows_member_epochs and group.members:
        raise KafkaError(
            KafkaCode.UNSUPPORTED_VERSION,
            "OffsetCommit 9 is the first that members of the streams protocol can use",
        )
    partitions = [
        (topic, one.partition)
        for topic, wanted in request.topics
        for one in wanted
        if one.code is _NONE
    ]
    check_commit(group, request.member_id, request.generation, partitions)


def _check_transaction_member(
    group: ConsumerGroup | ShareGroup | StreamsGroup, request: CommitRequest
) -> None:
    try:
        _check_member(group, request)
    except KafkaError as error:
        if error.code is not KafkaCode.STALE_MEMBER_EPOCH:
            raise
        # Producers know only the error of the classic protocol.
        raise KafkaError(KafkaCode.ILLEGAL_GENERATION, error.message) from error


def _check_classic_member(group: ClassicGroup, request: CommitRequest) -> None:
    if request.generation < 0 and group.state is _EMPTY:
        return
    if request.generation >= 0 or request.member_id or request.instance_id is not None:
        group.member(request.member_id, request.instance_id)
        if request.generation != group.generation:
            raise KafkaError(KafkaCode.ILLEGAL_GENERATION)
    elif group.state is not ClassicState.EMPTY:
        raise KafkaError(KafkaCode.UNKNOWN_MEMBER_ID)
    if group.state is ClassicState.COMPLETING_REBALANCE:
        # It has the new generation but not yet its assignment; it should sync first.
        raise KafkaError(KafkaCode.REBALANCE_IN_PROGRESS)


def _no_offsets(group: ShareGroup) -> KafkaError:
    text = f"Group {group.group_id} is a share group, which has no committed offsets."
    return KafkaError(KafkaCode.GROUP_ID_NOT_FOUND, text)


def _check_consumer_member(
    group: ConsumerGroup, member_id: str, epoch: int, knows_member_epochs: bool
) -> None:
    if epoch < 0 and not group.members:
        return
    member = group.members.get(member_id)
    if member is None:
        raise KafkaError(KafkaCode.UNKNOWN_MEMBER_ID)
    if member.speaks_classic:
        if epoch != member.current.epoch:
            raise KafkaError(KafkaCode.ILLEGAL_GENERATION)
        return
    if not knows_member_epochs:
        raise KafkaError(
            KafkaCode.UNSUPPORTED_VERSION,
            "OffsetCommit 9 is the first that members of the consumer protocol can use",
        )
    if epoch != member.current.epoch:
        raise KafkaError(KafkaCode.STALE_MEMBER_EPOCH)


def _keep_committer_alive(
    group: ClassicGroup, member_id: str, env: Env, decision: Decision[CommitReply]
) -> None:
    member = group.members.get(member_id)
    if member is not None:
        rebalance.keep_alive(group, member, env, decision)


@dataclass(slots=True)
class FetchedTopic:
    name: str
    # None if nothing was committed; a KafkaCode if the offset is unavailable.
    partitions: list[tuple[int, CommittedOffset | KafkaCode | None]] = field(default_factory=list)


def fetch(
    state: ShardState,
    group_id: str,
    *,
    topics: Sequence[tuple[str, Sequence[int]]] | None,
    member_id: str | None,
    member_epoch: int,
    require_stable: bool,
) -> Decision[list[FetchedTopic]]:
    """The committed offsets of these partitions; None means all."""
    group = state.groups.get(group_id)
    if (member_id or member_epoch >= 0) and isinstance(group, ConsumerGroup | StreamsGroup):
        member = group.members.get(member_id or "")
        if member is None:
            raise KafkaError(KafkaCode.UNKNOWN_MEMBER_ID)
        if member_epoch != member.current.epoch:
            raise KafkaError(KafkaCode.STALE_MEMBER_EPOCH)
    if topics is None:
        held = state.offsets.get(group_id, {})
        topics = [(name, list(partitions)) for name, partitions in held.items()]
    found = []
    for name, partitions in topics:
        fetched = FetchedTopic(name)
        for partition in partitions:
            value: CommittedOffset | KafkaCode | None
            if require_stable and state.has_pending_offsets(group_id, name, partition):
                value = KafkaCode.UNSTABLE_OFFSET_COMMIT
            else:
                value = state.committed(group_id, name, partition)
            fetched.partitions.append((partition, value))
        found.append(fetched)
    return Decision(reply=found)


def delete(
    state: ShardState, group_id: str, topics: Sequence[tuple[str, Sequence[int]]]
) -> Decision[CommitReply]:
    """Forget offsets of topics that no member reads."""
    group = state.group(group_id)
    if isinstance(group, ShareGroup):
        raise _no_offsets(group)
    if isinstance(group, ClassicGroup):
        is_in_use = group.state is not ClassicState.EMPTY
        if is_in_use and not group.is_of_consumers:
            raise KafkaError(KafkaCode.NON_EMPTY_GROUP)
    decision: Decision[CommitReply] = Decision(reply=[])
    assert decision.reply is not None
    for name, partitions in topics:
        if group.is_subscribed_to(name):
            decision.reply.append([KafkaCode.GROUP_SUBSCRIBED_TO_TOPIC] * len(partitions))
            continue
        for partition in partitions:
            if state.committed(group_id, name, partition) is not None:
                decision.records.append(OffsetChange(group_id, name, partition, None))
        decision.reply.append([KafkaCode.NONE] * len(partitions))
    return decision


def tombstones(state: ShardState, group_id: str) -> Iterable[OffsetChange]:
    for topic, partitions in state.offsets.get(group_id, {}).items():
        for partition in partitions:
            yield OffsetChange(group_id, topic, partition, None)


def forget_topics(state: ShardState, names: Iterable[str]) -> dict[str, list[OffsetChange]]:
    """By group: the records that forget deleted topics."""
    gone = set(names)
    found: dict[str, list[OffsetChange]] = {}
    for group_id, topics in state.offsets.items():
        for topic in gone & topics.keys():
            found.setdefault(group_id, []).extend(
                OffsetChange(group_id, topic, partition, None) for partition in topics[topic]
            )
    return found


def expired(state: ShardState, group_id: str, env: Env) -> list[OffsetChange]:
    """The offsets of a group that are older than the retention and that no member reads."""
    group = state.groups.get(group_id)
    if group is None or isinstance(group, ShareGroup):
        return []
    since_ms = _retention_begins_ms(group)
    if since_ms is None:
        return []
    found = []
    for topic, partitions in state.offsets.get(group_id, {}).items():
        if group.is_subscribed_to(topic):
            continue
        for partition, value in partitions.items():
            if value.expire_timestamp_ms >= 0:
                is_over = env.now_ms >= value.expire_timestamp_ms
            else:
                start_ms = max(since_ms, value.commit_timestamp_ms)
                is_over = env.now_ms - start_ms >= env.settings.offsets_retention_ms
            if is_over and not state.has_pending_offsets(group_id, topic, partition):
                found.append(OffsetChange(group_id, topic, partition, None))
    return found


def _retention_begins_ms(group: ClassicGroup | ConsumerGroup | StreamsGroup) -> int | None:
    """The retention starts at the commit, or when the group became empty; None: never."""
    if not isinstance(group, ClassicGroup) or group.protocol_type is None:
        return 0
    if group.state is ClassicState.EMPTY:
        return max(group.state_timestamp_ms, 0)
    if group.state is ClassicState.STABLE and group.subscribed_topics is not None:
        return 0
    return None
