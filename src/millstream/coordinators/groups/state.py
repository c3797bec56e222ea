"""The state of one shard: the replay of its partition of `__consumer_offsets`.

`apply` is the only way to change it. It is called for every record after it was appended,
and for every record of the log after a start. So the state is always exactly its replay.
"""

from typing import assert_never

from millstream.coordinators.classic.group import ClassicGroup
from millstream.coordinators.codecs.changes import (
    Change,
    CommittedOffset,
    ConsumerGroupChange,
    CurrentMemberChange,
    GroupChange,
    MemberChange,
    OffsetChange,
    PartitionMetadataChange,
    PatternChange,
    ShareCurrentMemberChange,
    SharedTopics,
    ShareGroupChange,
    ShareGroupRecord,
    ShareMemberChange,
    SharePartitionsChange,
    ShareTargetChange,
    ShareTargetMemberChange,
    TargetChange,
    TargetMemberChange,
)
from millstream.coordinators.codecs.streams_changes import (
    StreamsChange,
    StreamsCurrentMemberChange,
    StreamsGroupChange,
    StreamsMemberChange,
    StreamsTargetChange,
    StreamsTargetMemberChange,
    TopologyChange,
)
from millstream.coordinators.consumer.group import ConsumerGroup
from millstream.coordinators.share.group import ShareGroup
from millstream.coordinators.streams.group import FIRST_EPOCH, StreamsGroup, no_tasks
from millstream.errors import KafkaCode, KafkaError

Group = ClassicGroup | ConsumerGroup | ShareGroup | StreamsGroup
ConsumerChange = (
    ConsumerGroupChange
    | MemberChange
    | TargetChange
    | TargetMemberChange
    | CurrentMemberChange
    | PatternChange
)
# Committed offsets of one group: by topic, then by partition.
GroupOffsets = dict[str, dict[int, CommittedOffset]]
# An offset: its group, its topic and its partition.
OffsetKey = tuple[str, str, int]


class ShardState:
    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.offsets: dict[str, GroupOffsets] = {}
        # Offsets committed in open transactions, by producer, each with its number in the order
        # of the log; and the same numbers by offset, because every commit asks for its own.
        self._pending: dict[int, dict[OffsetKey, tuple[int, OffsetChange]]] = {}
        self._pending_numbers: dict[OffsetKey, dict[int, int]] = {}
        self._pending_count = 0

    def group(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(KafkaCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def committed(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        return self.offsets.get(group_id, {}).get(topic, {}).get(partition)

    def has_pending_offsets(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction may still change this offset."""
        return (group_id, topic, partition) in self._pending_numbers

    # -- applying records -------------------------------------------------------------

    def apply(self, change: Change) -> None:
        match change:
            case OffsetChange():
                self._apply_offset(change)
            case GroupChange():
                self._apply_group(change)
            case PartitionMetadataChange():
                pass
            case (
                ConsumerGroupChange()
                | MemberChange()
                | TargetChange()
                | TargetMemberChange()
                | CurrentMemberChange()
                | PatternChange()
            ):
                if change.value is None:
                    self._remove_consumer(change)
                else:
                    self._apply_consumer(change)
            case (
                ShareGroupChange()
                | ShareMemberChange()
                | ShareTargetChange()
                | ShareTargetMemberChange()
                | ShareCurrentMemberChange()
                | SharePartitionsChange()
            ):
                if change.value is None:
                    self._remove_share(change)
                else:
                    self._apply_share(change)
            case (
                StreamsGroupChange()
                | StreamsMemberChange()
                | StreamsTargetChange()
                | StreamsTargetMemberChange()
                | StreamsCurrentMemberChange()
                | TopologyChange()
            ):
                if change.value is None:
                    self._remove_streams(change)
                else:
                    self._apply_streams(change)
            case _:
                assert_never(change)

    def apply_pending(self, change: Change, producer_id: int) -> None:
        assert isinstance(change, OffsetChange), "only offsets are written in transactions"
        key = (change.group_id, change.topic, change.partition)
        self._pending_count += 1
        self._pending.setdefault(producer_id, {})[key] = (self._pending_count, change)
        self._pending_numbers.setdefault(key, {})[producer_id] = self._pending_count

    def end_transaction(self, producer_id: int, is_commit: bool) -> set[str]:
        changes = self._pending.pop(producer_id, {})
        for key in changes:
            self._forget_number(key, producer_id)
        if is_commit:
            for number, change in changes.values():
                self._apply_offset(change, number=number)
        return {change.group_id for _, change in changes.values()}

    def _forget_pending_before(self, change: OffsetChange, number: int) -> None:
        """Of two records for one offset the later one counts, whichever transaction ends last.

        Compaction keeps only that one, so a replay must have the same result."""
        key = (change.group_id, change.topic, change.partition)
        numbers = self._pending_numbers.get(key, {})
        for producer_id in [each for each, pending in numbers.items() if pending < number]:
            del self._pending[producer_id][key]
            self._forget_number(key, producer_id)

    def _forget_number(self, key: OffsetKey, producer_id: int) -> None:
        numbers = self._pending_numbers[key]
        del numbers[producer_id]
        if not numbers:
            del self._pending_numbers[key]

    def _apply_offset(self, change: OffsetChange, *, number: int | None = None) -> None:
        if self._pending:
            latest = self._pending_count + 1
            self._forget_pending_before(change, latest if number is None else number)
        if change.value is not None:
            if change.group_id not in self.groups:
                # Offsets alone create a group: a consumer that assigns partitions itself.
                self.groups[change.group_id] = ClassicGroup(change.group_id)
            topics = self.offsets.setdefault(change.group_id, {})
            topics.setdefault(change.topic, {})[change.partition] = change.value
            return
        group_offsets = self.offsets.get(change.group_id, {})
        partitions = group_offsets.get(change.topic, {})
        if partitions.pop(change.partition, None) is None or partitions:
            return
        del group_offsets[change.topic]
        if not group_offsets:
            del self.offsets[change.group_id]

    def _apply_group(self, change: GroupChange) -> None:
        group = self.groups.get(change.group_id)
        if change.value is None:
            if isinstance(group, ClassicGroup):
                del self.groups[change.group_id]
            return
        if not isinstance(group, ClassicGroup):
            group = self.groups[change.group_id] = ClassicGroup(change.group_id)
        group.take_over(change.value)

    def _consumer_group(self, group_id: str) -> ConsumerGroup:
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            group = self.groups[group_id] = ConsumerGroup(group_id)
        return group

    def _apply_consumer(self, change: ConsumerChange) -> None:
        group = self._consumer_group(change.group_id)
        assert change.value is not None
        match change:
            case ConsumerGroupChange():
                group.epoch = change.value.epoch
                group.metadata_hash = change.value.metadata_hash
            case MemberChange():
                group.set_member(change.member_id, change.value)
            case TargetChange():
                group.target_epoch = change.value.epoch
                group.target_timestamp_ms = change.value.timestamp_ms
            case TargetMemberChange():
                group.target[change.member_id] = change.value
            case CurrentMemberChange():
                group.set_current(change.member_id, change.value)
            case PatternChange():
                group.set_pattern(change.pattern, change.value)

    def _remove_consumer(self, change: ConsumerChange) -> None:
        group = self.groups.get(change.group_id)
        if not isinstance(group, ConsumerGroup):
            return
        match change:
            case ConsumerGroupChange():
                del self.groups[change.group_id]
            case MemberChange():
                group.remove_member(change.member_id)
            case TargetChange():
                group.target_epoch = 0
                group.target_timestamp_ms = 0
            case TargetMemberChange():
                group.target.pop(change.member_id, None)
            case CurrentMemberChange():
                group.clear_current(change.member_id)
            case PatternChange():
                group.remove_pattern(change.pattern)

    def _apply_share(self, change: ShareGroupRecord) -> None:
        group = self.groups.get(change.group_id)
        if not isinstance(group, ShareGroup):
            group = self.groups[change.group_id] = ShareGroup(change.group_id)
        assert change.value is not None
        match change:
            case ShareGroupChange():
                group.epoch = change.value.epoch
                group.metadata_hash = change.value.metadata_hash
            case ShareMemberChange():
                group.set_member(change.member_id, change.value)
            case ShareTargetChange():
                group.target_epoch = change.value.epoch
                group.target_timestamp_ms = change.value.timestamp_ms
            case ShareTargetMemberChange():
                group.target[change.member_id] = change.value
            case ShareCurrentMemberChange():
                group.set_current(change.member_id, change.value)
            case SharePartitionsChange():
                group.set_topics(change.value)

    def _remove_share(self, change: ShareGroupRecord) -> None:
        group = self.groups.get(change.group_id)
        if not isinstance(group, ShareGroup):
            return
        match change:
            case ShareGroupChange():
                del self.groups[change.group_id]
            case ShareMemberChange():
                group.remove_member(change.member_id)
            case ShareTargetChange():
                group.target_epoch = 0
                group.target_timestamp_ms = 0
            case ShareTargetMemberChange():
                group.target.pop(change.member_id, None)
            case ShareCurrentMemberChange():
                group.clear_current(change.member_id)
            case SharePartitionsChange():
                group.set_topics(SharedTopics())

    def _apply_streams(self, change: StreamsChange) -> None:
        group = self.groups.get(change.group_id)
        if not isinstance(group, StreamsGroup):
            group = self.groups[change.group_id] = StreamsGroup(change.group_id)
        assert change.value is not None
        match change:
            case StreamsGroupChange():
                group.epoch = change.value.epoch
                group.metadata_hash = change.value.metadata_hash
                group.validated_topology_epoch = change.value.validated_topology_epoch
                group.assignment_configs = change.value.assignment_configs
            case StreamsMemberChange():
                group.set_member(change.member_id, change.value)
            case StreamsTargetChange():
                group.target_epoch = change.value.epoch
                group.target_timestamp_ms = change.value.timestamp_ms
            case StreamsTargetMemberChange():
                group.target[change.member_id] = change.value
            case StreamsCurrentMemberChange():
                group.set_current(change.member_id, change.value)
            case TopologyChange():
                group.set_topology(change.value)

    def _remove_streams(self, change: StreamsChange) -> None:
        group = self.groups.get(change.group_id)
        if not isinstance(group, StreamsGroup):
            return
        match change:
            case StreamsGroupChange():
                del self.groups[change.group_id]
            case StreamsMemberChange():
                group.remove_member(change.member_id)
            case StreamsTargetChange():
                group.target_epoch = FIRST_EPOCH
                group.target_timestamp_ms = 0
            case StreamsTargetMemberChange():
                group.target.pop(change.member_id, None)
            case StreamsCurrentMemberChange():
                if change.member_id in group.members:
                    group.set_current(change.member_id, no_tasks())
            case TopologyChange():
                group.set_topology(None)
