"""The same requests of streams groups, answered by Apache Kafka and by a node.

Covers errors, statuses, tasks, commits and descriptions; texts may differ.
"""

from pathlib import Path
from typing import Any

from millstream.errors import KafkaCode
from millstream.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from millstream.wire.apis.delete_groups import DeleteGroupsRequest
from millstream.wire.apis.find_coordinator import FindCoordinatorRequest
from millstream.wire.apis.list_groups import ListGroupsRequest
from millstream.wire.apis.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from millstream.wire.apis.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    StreamsTaskIds,
)
from tests.support.apache_kafka import ApacheKafka
from tests.support.node import MillstreamNode
from tests.support.raw_client import RawClient
from tests.support.share_member import create_topic, set_group_options
from tests.support.streams_member import StreamsMember, counting, describe
from tests.support.waiting import wait_until

GROUP = "app"
AT_ONCE = {"streams_initial_rebalance_delay_ms": "0", "streams_assignment_interval_ms": "0"}
LOADING = (
    KafkaCode.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaCode.COORDINATOR_NOT_AVAILABLE,
    KafkaCode.NOT_COORDINATOR,
)
Answers = list[tuple[str, object]]


def tasks(rows: list[StreamsTaskIds] | None) -> object:
    return None if rows is None else {row.subtopology_id: sorted(row.partitions) for row in rows}


def seen(answer: StreamsGroupHeartbeatResponse) -> object:
    if answer.error_code != KafkaCode.NONE:
        return KafkaCode(answer.error_code)
    codes = [status.status_code for status in answer.status or ()]
    # Epochs count how often topics were seen to change, which is a matter of time.
    epoch = min(answer.member_epoch, 1)
    return epoch, codes, tasks(answer.active_tasks), tasks(answer.standby_tasks)


def described(client: RawClient) -> object:
    found = describe(client, GROUP)
    if found.error_code != KafkaCode.NONE or found.topology is None:
        return KafkaCode(found.error_code)
    return (
        found.group_state,
        found.group_epoch - found.assignment_epoch,
        found.topology.subtopologies,
        [(member.member_id, found.group_epoch - member.member_epoch) for member in found.members],
    )


def commit(client: RawClient, member_id: str, epoch: int, topic: str = "orders") -> KafkaCode:
    one = OffsetCommitPartition(partition_index=0, committed_offset=1, committed_metadata="")
    request = OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        topics=[OffsetCommitTopic(name=topic, partitions=[one])],
    )
    return KafkaCode(client.ask(request, 9).topics[0].partitions[0].error_code)


def member(client: RawClient, name: str) -> StreamsMember:
    made = StreamsMember(client, GROUP)
    made.member_id = name
    return made


def bad_requests(epoch: int) -> dict[str, dict[str, Any]]:
    """Fields that differ from a heartbeat of member `a`."""
    task = [StreamsTaskIds(subtopology_id="0", partitions=[9])]
    nothing: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
    join = {
        "member_id": "n",
        "member_epoch": 0,
        "rebalance_timeout_ms": 1000,
        "topology": counting("orders"),
        "process_id": "p",
        "client_tags": [],
        **nothing,
    }
    sized = counting("orders")
    sized.subtopologies[1].state_changelog_topics[0].partitions = 3
    return {
        "no member id": {"member_id": ""},
        "no group id": {"group_id": ""},
        "empty rack": {"rack_id": ""},
        "static member": {"instance_id": "i"},
        "static leave": {"member_epoch": -2},
        "no epoch": {"member_epoch": -3},
        "later epoch": {"member_epoch": epoch + 5},
        "earlier epoch": {"member_epoch": 1},
        "stranger": {"member_id": "z"},
        "no such group": {"group_id": "nowhere"},
        "topology later": {"topology": counting("orders")},
        "one kind of tasks": {"active_tasks": []},
        "no such task": {**nothing, "active_tasks": task},
        "warm-up": {**nothing, "warmup_tasks": task},
        "task offsets": {"task_offsets": []},
        "join without timeout": {**join, "rebalance_timeout_ms": -1},
        "join with tasks": {**join, "active_tasks": task},
        "join without topology": {**join, "topology": None},
        "other topology": {**join, "topology": counting("payments")},
        "internal topic": {**join, "topology": counting("__consumer_offsets")},
        "bad name": {**join, "topology": counting("a b")},
        "sized changelog": {**join, "topology": sized},
    }


def transcript(bootstrap: str) -> Answers:
    answers: Answers = []

    def note(what: str, answer: object) -> None:
        answers.append((what, answer))

    with RawClient(bootstrap) as client:
        _prepare(client)
        first, second = member(client, "a"), member(client, "b")
        _join_when_loaded(first)
        note("not ready", describe(client, GROUP).group_state)
        create_topic(client, "orders", 2)
        wait_until(lambda: first.beat().status == [], "the topology is complete")
        note("tasks", tasks(first.tasks))
        note("stable", seen(_confirm(first)))
        note("described", described(client))
        base = {"group_id": GROUP, "member_id": "a", "member_epoch": first.epoch}
        for what, fields in bad_requests(first.epoch).items():
            request = StreamsGroupHeartbeatRequest(
                **{**base, "endpoint_information_epoch": -1, **fields}
            )
            note(what, seen(client.ask(request, 0)))
        note("commit", commit(client, "a", first.epoch))
        note("commit in a later epoch", commit(client, "a", first.epoch + 1))
        note("commit in an earlier epoch", commit(client, "a", 1))
        note("commit to no topic", commit(client, "a", 1, "nowhere"))
        note("commit by a stranger", commit(client, "z", first.epoch))
        note("commit by nobody", commit(client, "", -1))
        note("second", seen(second.join(counting("orders"))))
        _settle(client, first, second)
        note("loads", sorted(len(row.partitions) for row in first.tasks + second.tasks))
        delete = DeleteGroupsRequest(groups_names=[GROUP])
        note("delete", KafkaCode(client.ask(delete, 2).results[0].error_code))
        consumer = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id="k",
            member_epoch=0,
            rebalance_timeout_ms=1000,
            subscribed_topic_names=["orders"],
            topic_partitions=[],
        )
        note("a consumer", KafkaCode(client.ask(consumer, 1).error_code))
        note(
            "shutdown", [s.status_code for s in first.beat(shutdown_application=True).status or ()]
        )
        for each in (first, second):
            each.epoch = -1
            note("leave", seen(each.beat()))
        listed = client.ask(ListGroupsRequest(states_filter=[], types_filter=["streams"]), 5).groups
        note("listed", [(one.group_id, one.group_type, one.group_state) for one in listed])
        note("commit to an empty group", commit(client, "", -1))
        note("delete", KafkaCode(client.ask(delete, 2).results[0].error_code))
        note("gone", described(client))
    return answers


def _prepare(client: RawClient) -> None:
    find = FindCoordinatorRequest(key="", coordinator_keys=[GROUP])
    wait_until(
        lambda: client.ask(find, 4).coordinators[0].error_code == KafkaCode.NONE, "a coordinator"
    )
    set_group_options(client, GROUP, **AT_ONCE)


def _join_when_loaded(joining: StreamsMember) -> None:
    topology = counting("orders")
    wait_until(lambda: joining.join(topology).error_code not in LOADING, "the group is loaded")


def _confirm(one: StreamsMember) -> StreamsGroupHeartbeatResponse:
    return one.beat(active_tasks=one.tasks, standby_tasks=[], warmup_tasks=[])


def _settle(client: RawClient, *members: StreamsMember) -> None:
    def is_stable() -> bool:
        for each in members:
            _confirm(each)
        return describe(client, GROUP).group_state == "Stable"

    wait_until(is_stable, "the group is stable")


def test_requests_are_answered_as_by_apache_kafka(tmp_path: Path) -> None:
    with MillstreamNode(tmp_path / "node") as node:
        ours = transcript(node.bootstrap)
    with ApacheKafka(tmp_path / "kafka") as kafka:
        theirs = transcript(kafka.bootstrap)
    assert ours == theirs
