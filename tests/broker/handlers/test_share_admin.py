"""Share groups as administrators see and change them.

Covers broker/handlers/share_group_describe.py, broker/handlers/describe_share_group_offsets.py,
broker/handlers/alter_share_group_offsets.py, broker/handlers/delete_share_group_offsets.py,
broker/handlers/delete_groups.py, broker/handlers/peek_share_group.py,
broker/requests/share_state_requests.py, broker/coordination/share_lag.py.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from millstream.broker.coordination import creation_quota
from millstream.broker.handlers import describe_share_group_offsets as describe_handler
from millstream.broker.requests.turns import TOO_LARGE
from millstream.errors import KafkaCode
from millstream.testing import Broker
from millstream.wire.apis import (
    alter_share_group_offsets,
    delete_groups,
    delete_share_group_offsets,
    delete_share_group_state,
    describe_share_group_offsets,
    find_coordinator,
    initialize_share_group_state,
    list_groups,
    peek_share_group,
    read_share_group_state,
    read_share_group_state_summary,
    share_group_describe,
    write_share_group_state,
)
from tests.broker.handlers.test_share_fetch import LONG_MS, Queue
from tests.support.share_member import ACCEPT, ShareMember

# More than are read on the loop, so that the longer way is taken.
MANY = 3_000


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def queue(broker: Broker) -> Iterator[Queue]:
    """Ten records, of which four are acknowledged; its member has left."""
    made = Queue(broker.bootstrap)
    made.produce(10)
    member = made.member()
    member.fetch(wait_ms=LONG_MS)
    assert member.acknowledge((0, 2, [ACCEPT]), (5, 5, [ACCEPT])) is KafkaCode.NONE
    member.close_session()
    member.leave()
    yield made
    made.close()


def offsets_of(queue: Queue, *, is_all: bool = True, partitions: Sequence[int] = (0, 3)) -> Any:
    topics = None
    if not is_all:
        row = describe_share_group_offsets.ShareOffsetsTopicWanted
        topics = [
            row(topic_name=queue.name, partitions=list(partitions)),
            row(topic_name="no", partitions=[0]),
        ]
    wanted = describe_share_group_offsets.ShareOffsetsWanted(group_id=queue.name, topics=topics)
    request = describe_share_group_offsets.DescribeShareGroupOffsetsRequest(groups=[wanted])
    [group] = queue.client.ask(request, 1).groups
    assert group.error_code == KafkaCode.NONE
    return group.topics


def alter(queue: Queue, **starts: int) -> Any:
    rows = [
        alter_share_group_offsets.ShareOffsetsAlteredPartition(
            partition_index=int(name.removeprefix("p")), start_offset=offset
        )
        for name, offset in starts.items()
    ]
    topic = alter_share_group_offsets.ShareOffsetsAlteredTopic(
        topic_name=queue.name, partitions=rows
    )
    request = alter_share_group_offsets.AlterShareGroupOffsetsRequest(
        group_id=queue.name, topics=[topic]
    )
    return queue.client.ask(request, 0)


def test_the_start_and_the_lag_are_shown(queue: Queue) -> None:
    [topic] = offsets_of(queue)
    [row] = topic.partitions
    assert (topic.topic_name, row.partition_index) == (queue.name, 0)
    # The start moves with the next change, the finished records after it count at once.
    assert row.lag == 6
    named, unknown = offsets_of(queue, is_all=False)
    assert [one.error_code for one in named.partitions] == [0, KafkaCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert unknown.partitions[0].error_code == KafkaCode.UNKNOWN_TOPIC_OR_PARTITION


def test_partitions_are_shown_once_however_often_they_are_named(queue: Queue) -> None:
    repeated, _ = offsets_of(queue, is_all=False, partitions=[0] * MANY)
    assert [(row.partition_index, row.lag) for row in repeated.partitions] == [(0, 6)]
    many, _ = offsets_of(queue, is_all=False, partitions=range(MANY))
    assert [row.partition_index for row in many.partitions] == list(range(MANY))
    codes = [row.error_code for row in many.partitions]
    assert codes == [KafkaCode.NONE] + [KafkaCode.UNKNOWN_TOPIC_OR_PARTITION] * (MANY - 1)
    row = peek_share_group.PeekedPartitionStart(partition=0, start_offset=0)
    topic = peek_share_group.PeekedTopic(topic=queue.name, partitions=[row] * MANY)
    request = peek_share_group.PeekShareGroupRequest(group_id=queue.name, topics=[topic])
    [shown] = queue.client.ask(request, 0).partitions
    assert (shown.topic, shown.partition, shown.end_offset) == (queue.name, 0, 10)


def offsets_of_groups(queue: Queue, group_ids: Sequence[str]) -> Any:
    wanted = [
        describe_share_group_offsets.ShareOffsetsWanted(group_id=group_id, topics=None)
        for group_id in group_ids
    ]
    request = describe_share_group_offsets.DescribeShareGroupOffsetsRequest(groups=wanted)
    return queue.client.ask(request, 1).groups


def test_groups_are_shown_once_however_often_they_are_named(queue: Queue) -> None:
    shown = offsets_of_groups(queue, [queue.name] * MANY + ["no group"])
    assert [group.group_id for group in shown] == [queue.name, "no group"]
    assert [len(group.topics) for group in shown] == [1, 0]


def test_groups_for_which_the_response_has_no_room_are_refused(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(describe_handler, "RESPONSE_BYTES_MAX", 2_000)
    [first, other] = offsets_of_groups(queue, [queue.name, "n" * 2_000])
    assert (first.error_code, len(first.topics)) == (KafkaCode.NONE, 1)
    assert (other.error_code, other.error_message) == (KafkaCode.INVALID_REQUEST, TOO_LARGE)
    monkeypatch.setattr(describe_handler, "RESPONSE_BYTES_MAX", 1_000)
    [first] = offsets_of_groups(queue, [queue.name])
    assert (first.error_code, first.topics) == (KafkaCode.INVALID_REQUEST, [])


def test_starts_of_unknown_partitions_are_each_refused(queue: Queue) -> None:
    [topic] = alter(queue, **{f"p{number}": 8 for number in range(MANY)}).responses
    codes = [row.error_code for row in topic.partitions]
    assert codes == [KafkaCode.NONE] + [KafkaCode.UNKNOWN_TOPIC_OR_PARTITION] * (MANY - 1)
    queue.member().fetch(wait_ms=LONG_MS)
    # Nothing of what is asked is possible, and the group has a member.
    assert alter(queue, p7=0).error_code == KafkaCode.NON_EMPTY_GROUP


def test_a_group_starts_elsewhere(queue: Queue) -> None:
    answer = alter(queue, p0=8, p7=0)
    [topic] = answer.responses
    codes = [row.error_code for row in topic.partitions]
    assert codes == [KafkaCode.NONE, KafkaCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert queue.member().fetch(wait_ms=LONG_MS).ranges == [(8, 9, 1)]
    refused = alter(queue, p0=0)
    assert refused.error_code == KafkaCode.NON_EMPTY_GROUP


def test_a_client_begins_so_many_groups_at_once(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = alter_share_group_offsets.ShareOffsetsAlteredTopic(
        topic_name=queue.name,
        partitions=[
            alter_share_group_offsets.ShareOffsetsAlteredPartition(
                partition_index=0, start_offset=0
            )
        ],
    )

    def begin(group_id: str) -> int:
        request = alter_share_group_offsets.AlterShareGroupOffsetsRequest(
            group_id=group_id, topics=[topic]
        )
        return int(queue.client.ask(request, 0).error_code)

    assert begin(f"{queue.name}-new") == KafkaCode.NONE
    monkeypatch.setattr(creation_quota, "AT_ONCE_MAX", 0)
    assert begin(f"{queue.name}-another") == KafkaCode.THROTTLING_QUOTA_EXCEEDED
    assert begin(f"{queue.name}-new") == KafkaCode.NONE


def test_a_group_forgets_a_topic(queue: Queue) -> None:
    topics = [
        delete_share_group_offsets.ShareOffsetsDeletedTopic(topic_name=name)
        for name in (queue.name, "no")
    ]
    request = delete_share_group_offsets.DeleteShareGroupOffsetsRequest(
        group_id=queue.name, topics=topics
    )
    answer = queue.client.ask(request, 0)
    codes = [row.error_code for row in answer.responses]
    assert codes == [KafkaCode.NONE, KafkaCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert offsets_of(queue) == []
    # Its next member begins where a new group begins.
    assert queue.member().fetch(wait_ms=LONG_MS).ranges == [(0, 9, 1)]


def test_a_group_forgets_no_unknown_topics(queue: Queue) -> None:
    row = delete_share_group_offsets.ShareOffsetsDeletedTopic
    topics = [row(topic_name=f"no-{number}") for number in range(MANY)]
    request = delete_share_group_offsets.DeleteShareGroupOffsetsRequest
    answer = queue.client.ask(request(group_id=queue.name, topics=topics), 0)
    assert [one.topic_name for one in answer.responses] == [one.topic_name for one in topics]
    codes = {one.error_code for one in answer.responses}
    assert codes == {KafkaCode.UNKNOWN_TOPIC_OR_PARTITION}
    unknown = queue.client.ask(request(group_id="nobody", topics=topics), 0)
    assert (unknown.error_code, unknown.responses) == (KafkaCode.GROUP_ID_NOT_FOUND, [])


def test_a_group_is_listed_described_and_deleted(queue: Queue) -> None:
    listed = queue.client.ask(
        list_groups.ListGroupsRequest(states_filter=[], types_filter=["share"]), 5
    )
    assert (queue.name, "share", "Empty") in [
        (one.group_id, one.group_type, one.group_state) for one in listed.groups
    ]
    member = queue.member()
    request = share_group_describe.ShareGroupDescribeRequest(
        group_ids=[queue.name, "no group"], include_authorized_operations=True
    )
    found, missing = queue.client.ask(request, 1).groups
    assert missing.error_code == KafkaCode.GROUP_ID_NOT_FOUND
    [row] = found.members
    assert (found.group_state, found.assignor_name) == ("Stable", "simple")
    assert (row.member_id, row.subscribed_topic_names) == (member.member_id, [queue.name])
    [assigned] = row.assignment.topic_partitions
    assert (assigned.topic_name, assigned.partitions) == (queue.name, [0])
    delete = delete_groups.DeleteGroupsRequest(groups_names=[queue.name])
    [result] = queue.client.ask(delete, 2).results
    assert result.error_code == KafkaCode.NON_EMPTY_GROUP
    member.leave()
    [result] = queue.client.ask(delete, 2).results
    assert result.error_code == KafkaCode.NONE
    [result] = queue.client.ask(delete, 2).results
    assert result.error_code == KafkaCode.GROUP_ID_NOT_FOUND


def test_a_topic_that_is_created_again_has_no_state(broker: Broker, queue: Queue) -> None:
    broker.delete_topic(queue.name)
    broker.create_topic(queue.name)
    queue.produce(3)
    assert queue.member().fetch(wait_ms=LONG_MS).ranges == [(0, 2, 1)]


def test_the_coordinator_of_a_share_partition_is_found(queue: Queue) -> None:
    request = find_coordinator.FindCoordinatorRequest(
        key_type=2, coordinator_keys=[f"{queue.name}:AAAAAAAAAAAAAAAAAAAAAQ:0"]
    )
    [found] = queue.client.ask(request, 6).coordinators
    assert (found.error_code, found.node_id) == (KafkaCode.NONE, 1)


def test_the_state_is_for_nodes_only(queue: Queue) -> None:
    with ShareMember(queue.bootstrap, queue.name, queue.name) as member:
        where = {"topic_id": member.topic_id}
    one: Any = initialize_share_group_state
    row: Any = one.InitializeStatePartition(partition=0, state_epoch=99, start_offset=0)
    topic: Any = one.InitializeStateTopic(**where, partitions=[row])
    requests: list[Any] = [
        one.InitializeShareGroupStateRequest(group_id=queue.name, topics=[topic])
    ]
    one = read_share_group_state
    topic = one.ReadStateTopic(
        **where, partitions=[one.ReadStatePartition(partition=0, leader_epoch=99)]
    )
    requests.append(one.ReadShareGroupStateRequest(group_id=queue.name, topics=[topic]))
    one = write_share_group_state
    row = one.WriteStatePartition(
        partition=0, state_epoch=99, leader_epoch=99, start_offset=9, state_batches=[]
    )
    topic = one.WriteStateTopic(**where, partitions=[row])
    requests.append(one.WriteShareGroupStateRequest(group_id=queue.name, topics=[topic]))
    one = delete_share_group_state
    topic = one.DeleteStateTopic(**where, partitions=[one.DeleteStatePartition(partition=0)])
    requests.append(one.DeleteShareGroupStateRequest(group_id=queue.name, topics=[topic]))
    one = read_share_group_state_summary
    topic = one.ReadSummaryTopic(
        **where, partitions=[one.ReadSummaryPartition(partition=0, leader_epoch=-1)]
    )
    requests.append(one.ReadShareGroupStateSummaryRequest(group_id=queue.name, topics=[topic]))
    for request in requests:
        [result] = queue.client.ask(request, 0).results
        [found] = result.partitions
        assert found.error_code == KafkaCode.CLUSTER_AUTHORIZATION_FAILED, request
