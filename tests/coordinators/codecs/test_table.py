"""Every record comes back from its bytes, and old versions of Kafka's are understood."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as some

from millstream.coordinators.codecs.changes import (
    ClassicProtocols,
    CommittedOffset,
    ConsumerGroupChange,
    CurrentAssignment,
    CurrentMemberChange,
    GroupChange,
    MatchedTopics,
    MemberChange,
    MemberState,
    OffsetChange,
    PartitionMetadataChange,
    PatternChange,
    ShareAssignment,
    ShareCurrentMemberChange,
    SharedTopic,
    SharedTopics,
    ShareGroupChange,
    ShareMemberChange,
    SharePartitionsChange,
    ShareTargetChange,
    ShareTargetMemberChange,
    StoredConsumerGroup,
    StoredConsumerMember,
    StoredGroup,
    StoredMember,
    StoredShareMember,
    StoredTarget,
    TargetChange,
    TargetMemberChange,
)
from millstream.coordinators.codecs.streams_changes import (
    CopartitionGroup,
    CurrentTasks,
    Endpoint,
    InternalTopic,
    OwnedTasks,
    StoredStreamsGroup,
    StoredStreamsMember,
    StoredStreamsTarget,
    StreamsCurrentMemberChange,
    StreamsGroupChange,
    StreamsMemberChange,
    StreamsMemberState,
    StreamsTargetChange,
    StreamsTargetMemberChange,
    Subtopology,
    TaskAssignment,
    Topology,
    TopologyChange,
)
from millstream.coordinators.codecs.table import decode, encode

text = some.text(max_size=20)
maybe_text = some.none() | text
number = some.integers(-(2**31), 2**31 - 1)
long_number = some.integers(-(2**63), 2**63 - 1)
time_ms = some.integers(0, 2**50)
data = some.binary(max_size=40)
assignments = some.dictionaries(
    some.uuids(), some.lists(some.integers(0, 999), min_size=1, unique=True), max_size=3
).map(lambda found: {each: tuple(sorted(found[each])) for each in sorted(found)})
offsets = some.builds(CommittedOffset, long_number, some.just(-1) | number, text, time_ms)
members = some.builds(StoredMember, text, maybe_text, text, text, number, number, data, data)
groups = some.builds(
    StoredGroup, text, number, maybe_text, maybe_text, time_ms, some.lists(members, max_size=3)
)
classic = some.builds(
    ClassicProtocols, number, some.lists(some.tuples(text, data), max_size=2).map(tuple)
)
consumers = some.builds(
    StoredConsumerMember,
    maybe_text,
    maybe_text,
    text,
    text,
    some.lists(text, max_size=3).map(tuple),
    maybe_text,
    number,
    maybe_text,
    some.none() | classic,
)
currents = some.builds(
    CurrentAssignment,
    number,
    number,
    some.sampled_from(list(MemberState)[:3]),
    assignments,
    assignments,
)
shared_topics = some.dictionaries(
    some.uuids(),
    some.builds(
        SharedTopic,
        text,
        some.lists(some.integers(0, 99), unique=True).map(lambda found: tuple(sorted(found))),
    ),
    max_size=3,
)
share_changes = some.one_of(
    some.builds(
        ShareGroupChange,
        text,
        some.none() | some.builds(StoredConsumerGroup, number, long_number),
    ),
    some.builds(
        ShareMemberChange,
        text,
        text,
        some.none()
        | some.builds(
            StoredShareMember, maybe_text, text, text, some.lists(text, max_size=3).map(tuple)
        ),
    ),
    some.builds(
        ShareTargetChange, text, some.none() | some.builds(StoredTarget, number, long_number)
    ),
    some.builds(ShareTargetMemberChange, text, text, some.none() | assignments),
    some.builds(
        ShareCurrentMemberChange,
        text,
        text,
        some.none() | some.builds(ShareAssignment, number, number, assignments),
    ),
    some.builds(
        SharePartitionsChange,
        text,
        some.none()
        | some.builds(
            SharedTopics,
            shared_topics,
            shared_topics,
            some.dictionaries(some.uuids(), text, max_size=2),
        ),
    ),
)
small = some.integers(0, 2**15 - 1)
pairs = some.lists(some.tuples(text, text), max_size=2, unique_by=lambda pair: pair[0]).map(
    lambda found: tuple(sorted(found))
)
texts = some.lists(text, max_size=2).map(tuple)
positions = some.lists(small, max_size=2).map(tuple)
partitions = some.lists(some.integers(0, 999), min_size=1, max_size=3, unique=True)
tasks = some.dictionaries(text, partitions.map(lambda found: tuple(sorted(found))), max_size=2)
task_epochs = some.dictionaries(
    text, some.dictionaries(some.integers(0, 99), number, min_size=1, max_size=3), max_size=2
)
owned_tasks = some.builds(OwnedTasks, task_epochs, tasks, tasks)
internal_topics = some.lists(
    some.builds(InternalTopic, text, number, small, pairs), max_size=2
).map(tuple)
copartition_groups = some.builds(CopartitionGroup, positions, positions, positions)
subtopologies = some.builds(
    Subtopology,
    text,
    texts,
    texts,
    internal_topics,
    texts,
    internal_topics,
    some.lists(copartition_groups, max_size=2).map(tuple),
)
streams_members = some.builds(
    StoredStreamsMember,
    maybe_text,
    maybe_text,
    text,
    text,
    number,
    number,
    text,
    some.none() | some.builds(Endpoint, text, some.integers(0, 65535)),
    pairs,
)
streams_groups = some.builds(StoredStreamsGroup, number, long_number, number, pairs.map(dict))
streams_currents = some.builds(
    CurrentTasks,
    number,
    number,
    some.sampled_from(list(StreamsMemberState)[:3]),
    owned_tasks,
    owned_tasks,
)
streams_changes = some.one_of(
    some.builds(StreamsGroupChange, text, some.none() | streams_groups),
    some.builds(StreamsMemberChange, text, text, some.none() | streams_members),
    some.builds(
        StreamsTargetChange,
        text,
        some.none() | some.builds(StoredStreamsTarget, number, long_number),
    ),
    some.builds(
        StreamsTargetMemberChange,
        text,
        text,
        some.none() | some.builds(TaskAssignment, tasks, tasks, tasks),
    ),
    some.builds(StreamsCurrentMemberChange, text, text, some.none() | streams_currents),
    some.builds(
        TopologyChange,
        text,
        some.none()
        | some.builds(Topology, number, some.lists(subtopologies, max_size=2).map(tuple)),
    ),
)
changes = some.one_of(
    share_changes,
    streams_changes,
    some.builds(OffsetChange, text, text, number, some.none() | offsets),
    some.builds(GroupChange, text, some.none() | groups),
    some.builds(
        ConsumerGroupChange,
        text,
        some.none() | some.builds(StoredConsumerGroup, number, long_number),
    ),
    some.builds(PartitionMetadataChange, text),
    some.builds(MemberChange, text, text, some.none() | consumers),
    some.builds(TargetChange, text, some.none() | some.builds(StoredTarget, number, long_number)),
    some.builds(TargetMemberChange, text, text, some.none() | assignments),
    some.builds(CurrentMemberChange, text, text, some.none() | currents),
    some.builds(
        PatternChange,
        text,
        text,
        some.none()
        | some.builds(MatchedTopics, some.lists(text).map(tuple), long_number, long_number),
    ),
)


@given(changes)
def test_a_change_comes_back_from_its_record(change: object) -> None:
    key, value = encode(change)
    assert decode(key, value) == change


def test_a_retention_of_its_own_is_kept_with_the_offset() -> None:
    value = CommittedOffset(7, -1, "m", 10, expire_timestamp_ms=99)
    change = OffsetChange("g", "t", 1, value)
    assert decode(*encode(change)) == change


# Written out by hand from Kafka's message definitions.
KEY = bytes.fromhex("0001 0001 67 0001 74 00000002")


@pytest.mark.parametrize(
    ("version", "value"),
    [
        (0, "0000 0000000000000005 0001 6d 0000000000000009"),
        (1, "0001 0000000000000005 0001 6d 0000000000000009 000000000000000a"),
        (2, "0002 0000000000000005 0001 6d 0000000000000009"),
        (3, "0003 0000000000000005 00000004 0001 6d 0000000000000009"),
        (4, "0004 0000000000000005 00000004 02 6d 0000000000000009 00"),
    ],
)
def test_every_version_of_a_committed_offset_is_read(version: int, value: str) -> None:
    change = decode(KEY, bytes.fromhex(value))
    assert isinstance(change, OffsetChange)
    assert change.value is not None
    assert (change.group_id, change.topic, change.partition) == ("g", "t", 2)
    found = change.value
    assert (found.offset, found.metadata, found.commit_timestamp_ms) == (5, "m", 9)
    assert found.leader_epoch == (4 if version >= 3 else -1)
    assert found.expire_timestamp_ms == (10 if version == 1 else -1)


def test_the_topic_id_of_a_newer_kafka_is_read() -> None:
    value = "0004 0000000000000005 ffffffff 01 0000000000000009 01 00 10" + "ab" * 16
    change = decode(KEY, bytes.fromhex(value))
    assert isinstance(change, OffsetChange)
    assert change.value is not None
    assert change.value.topic_id == UUID("ab" * 16)


def test_old_groups_are_read() -> None:
    key = bytes.fromhex("0002 0001 67")
    member = "0001 6d 0001 63 0001 68 {timeouts} 00000001 01 00000001 02"
    version_0 = "0000 0008" + b"consumer".hex() + "00000003 0001 72 0001 6d 00000001" + member
    change = decode(key, bytes.fromhex(version_0.format(timeouts="00000005")))
    assert isinstance(change, GroupChange)
    assert change.value is not None
    [row] = change.value.members
    assert (row.rebalance_timeout_ms, row.session_timeout_ms) == (5, 5)
    assert (row.subscription, row.assignment) == (b"\x01", b"\x02")
    assert change.value.state_timestamp_ms == -1


def test_kinds_that_we_do_not_keep_are_passed_over() -> None:
    # The partitions of a streams group, written by Kafka before 4.1.
    assert decode(bytes.fromhex("0012 0001 67"), b"\x00\x00") is None


def test_a_streams_members_tasks_are_written_as_kafka_writes_them() -> None:
    current = CurrentTasks(
        5,
        4,
        StreamsMemberState.UNRELEASED_TASKS,
        OwnedTasks({"0": {1: 3}}, {"1": (2,)}),
        OwnedTasks(),
    )
    key, value = encode(StreamsCurrentMemberChange("g", "m", current))
    assert key == bytes.fromhex("0016 0001 67 0001 6d")
    active = "02 02 30 02 00000001 01 00 05 02 00000003"
    standby = "02 02 31 02 00000002 00"
    parts = f"0000 00000005 00000004 03 {active} {standby} 01 01 01 01 00"
    assert value == bytes.fromhex(parts)


def test_a_streams_member_without_epochs_of_its_tasks_has_them_in_its_own() -> None:
    value = "0000 00000005 00000004 01 02 02 30 02 00000001 00 01 01 01 01 01 00"
    change = decode(bytes.fromhex("0016 0001 67 0001 6d"), bytes.fromhex(value))
    assert isinstance(change, StreamsCurrentMemberChange)
    assert change.value is not None
    assert change.value.assigned == OwnedTasks({"0": {1: 5}})


@pytest.mark.parametrize("value", ["", "0009", "0003 00000000"])
def test_bytes_that_do_not_add_up_are_an_error(value: str) -> None:
    with pytest.raises(ValueError):
        decode(KEY, bytes.fromhex(value))
