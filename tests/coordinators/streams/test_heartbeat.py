"""Transcripts of streams groups (KIP-1071).

Covers coordinators/streams/epochs.py, coordinators/streams/endpoints.py,
coordinators/streams/group.py, coordinators/streams/heartbeat.py.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from millstream.coordinators.codecs.streams_changes import (
    Endpoint,
    InternalTopic,
    StreamsMemberState,
    TaskAssignment,
    Topology,
)
from millstream.coordinators.groups import admin, requests
from millstream.coordinators.streams.endpoints import EndpointPartitions
from millstream.coordinators.streams.topology import StatusCode
from millstream.errors import KafkaCode, KafkaError
from tests.coordinators.steps import steps
from tests.coordinators.streams.streams_world import (
    AT_ONCE,
    CHANGELOG,
    REPARTITION,
    WORD_COUNT,
    StreamsWorld,
    all_topics,
    subtopology,
    word_count,
)
from tests.coordinators.world import GROUP, REBALANCE_MS, durable, image_of, refused

ALL = TaskAssignment({"0": (0, 1), "1": (0, 1)})


def codes(reply: Any) -> list[StatusCode]:
    return [status.code for status in reply.statuses]


def test_the_first_member_gets_every_task() -> None:
    world = StreamsWorld()
    reply = world.report("a", 0)
    assert (reply.epoch, reply.tasks, reply.statuses) == (2, ALL, [])
    assert world.confirm(reply).tasks is None
    assert world.streams().state_name == "Stable"


def test_a_second_member_gets_its_share_when_the_first_has_given_it_up() -> None:
    world = StreamsWorld()
    first = world.report("a", 0)
    world.confirm(first)
    second = world.report("b", 0)
    assert (second.epoch, second.tasks) == (3, TaskAssignment())
    asked = world.report("a", first.epoch)
    # It stays in its epoch until it reports that the tasks are gone.
    assert asked.epoch == first.epoch
    assert asked.tasks is not None
    assert world.report("b", second.epoch).tasks is None
    assert world.confirm(asked).epoch == second.epoch
    given = world.report("b", second.epoch).tasks
    assert given is not None
    for subtopology_id in ("0", "1"):
        both = [*asked.tasks.active.get(subtopology_id, ()), *given.active.get(subtopology_id, ())]
        assert sorted(both) == [0, 1]


def test_a_group_without_its_internal_topics_asks_for_them() -> None:
    world = StreamsWorld()
    world.set_topics(orders=3)
    reply = world.report("a", 0)
    assert codes(reply) == [StatusCode.MISSING_INTERNAL_TOPICS]
    assert [(topic.name, topic.partitions) for topic in reply.missing] == [
        (CHANGELOG, 3),
        (REPARTITION, 3),
    ]
    assert reply.tasks == TaskAssignment()
    assert world.streams().state_name == "NotReady"
    world.set_topics(**all_topics(3))
    after = world.report("a", reply.epoch)
    assert after.statuses == []
    assert after.missing == ()
    assert after.tasks == TaskAssignment({"0": (0, 1, 2), "1": (0, 1, 2)})


def test_missing_source_topics_are_reported_at_the_configured_interval() -> None:
    world = StreamsWorld()
    world.set_topics(payments=1)
    reply = world.report("a", 0)
    assert codes(reply) == [StatusCode.MISSING_SOURCE_TOPICS]
    assert reply.missing == ()
    # A client gives up after two intervals.
    assert reply.interval_ms == 5_000


def test_tasks_are_taken_away_when_a_topic_disappears() -> None:
    world = StreamsWorld()
    world.settle(world.report("a", 0))
    world.set_topics(orders=2, **{CHANGELOG: 2})
    reply = world.report("a", 2)
    assert codes(reply) == [StatusCode.MISSING_INTERNAL_TOPICS]
    assert reply.tasks == TaskAssignment()
    assert world.streams().state_name == "NotReady"


def test_tasks_follow_a_source_topic_that_grows() -> None:
    world = StreamsWorld()
    plain = Topology(0, (subtopology(0, "orders"),))
    reply = world.report("a", 0, topology=plain)
    world.confirm(reply)
    world.set_topics(orders=4)
    assert world.report("a", reply.epoch).tasks == TaskAssignment({"0": (0, 1, 2, 3)})


def test_a_heartbeat_without_news_writes_nothing() -> None:
    world = StreamsWorld()
    world.settle(world.report("a", 0))
    before = len(world.log)
    # Another topic is none of its business.
    world.set_topics(**all_topics(), payments=1)
    reply = world.report("a", 2)
    assert (reply.tasks, reply.statuses) == (None, [])
    assert len(world.log) == before


def test_a_new_group_waits_for_more_members() -> None:
    world = StreamsWorld()
    streams = replace(AT_ONCE.streams, initial_rebalance_delay_ms=3_000)
    world.settings = replace(AT_ONCE, streams=streams)
    first = world.report("a", 0)
    assert (first.epoch, first.tasks) == (1, TaskAssignment())
    assert codes(first) == [StatusCode.ASSIGNMENT_DELAYED]
    world.pass_time(2_999)
    second = world.report("b", 0)
    assert codes(second) == [StatusCode.ASSIGNMENT_DELAYED]
    assert world.streams().state_name == "Assigning"
    world.pass_time(1)
    reply = world.report("a", 1)
    assert reply.tasks == world.streams().target["a"]
    assert len(reply.tasks.active) + len(world.streams().target["b"].active) >= 2
    assert reply.statuses == []


def test_targets_are_computed_no_more_often_than_configured() -> None:
    world = StreamsWorld()
    streams = replace(AT_ONCE.streams, assignment_interval_ms=1_000)
    world.settings = replace(AT_ONCE, streams=streams)
    world.confirm(world.report("a", 0))
    world.now_ms += 999
    second = world.report("b", 0)
    assert codes(second) == [StatusCode.ASSIGNMENT_DELAYED]
    assert second.tasks == TaskAssignment()
    world.now_ms += 1
    assert world.report("b", second.epoch).statuses == []
    assert world.streams().target["b"] != TaskAssignment()


def test_a_silent_members_tasks_go_to_the_others() -> None:
    world = StreamsWorld()
    last = world.settle(world.report("a", 0), world.report("b", 0))
    world.pass_time(30_000)
    world.report("a", last["a"].epoch)
    world.pass_time(15_000)
    assert set(world.streams().members) == {"a"}
    assert world.report("a", last["a"].epoch).tasks == ALL


def test_a_member_that_does_not_revoke_in_time_is_removed() -> None:
    world = StreamsWorld()
    first = world.report("a", 0)
    world.confirm(first)
    world.report("b", 0)
    world.report("a", first.epoch)
    for _ in range(REBALANCE_MS // 20_000 + 1):
        world.pass_time(20_000)
        for member_id in set(world.streams().members):
            world.report(member_id, world.streams().members[member_id].current.epoch)
    assert set(world.streams().members) == {"b"}
    assert refused(lambda: world.report("a", first.epoch)) is KafkaCode.UNKNOWN_MEMBER_ID


def test_a_member_that_leaves_hands_over_at_once() -> None:
    world = StreamsWorld()
    last = world.settle(world.report("a", 0), world.report("b", 0))
    gone = world.report("b", -1)
    assert (gone.epoch, gone.statuses) == (-1, [])
    assert world.report("a", last["a"].epoch).tasks == ALL
    world.report("a", -1)
    assert world.streams().state_name == "Empty"


def test_standbys_are_as_many_as_the_group_sets() -> None:
    world = StreamsWorld()
    world.image.group_overrides[GROUP] = {"streams.num.standby.replicas": "1"}
    last = world.settle(world.report("a", 0), world.report("b", 0))
    standbys = [last[each].tasks.standby for each in "ab" if last[each].tasks is not None]
    assert sorted(p for tasks in standbys for p in tasks.get("1", ())) == [0, 1]
    # The settings are part of the group: another number is another assignment.
    world.image.group_overrides.clear()
    last = world.settle(*last.values())
    assert all(not reply.tasks.standby for reply in last.values() if reply.tasks is not None)


def test_threads_of_one_process_share_no_task() -> None:
    world = StreamsWorld()
    world.image.group_overrides[GROUP] = {"streams.num.standby.replicas": "1"}
    last = world.settle(world.report("a1", 0), world.report("a2", 0))
    assert all(not reply.tasks.standby for reply in last.values() if reply.tasks is not None)


def test_a_restart_loses_nothing() -> None:
    world = StreamsWorld()
    last = world.settle(world.report("a", 0), world.report("b", 0))
    world.restart()
    assert world.streams().state_name == "Stable"
    for member_id, reply in last.items():
        assert world.report(member_id, reply.epoch).tasks is None
    world.pass_time(44_999)
    assert set(world.streams().members) == {"a", "b"}
    world.pass_time(1)
    assert world.streams().state_name == "Empty"


def test_compaction_may_put_a_members_tasks_before_its_metadata() -> None:
    world = StreamsWorld()
    last = world.settle(world.report("a", 0), world.report("b", 0))
    # The target, and with it the tasks, would follow later.
    streams = replace(AT_ONCE.streams, assignment_interval_ms=10_000)
    world.settings = replace(AT_ONCE, streams=streams)
    world.report("a", last["a"].epoch, client_tags=(("zone", "1"),))
    compacted: dict[bytes, bytes | None] = {}
    for key, value in world.log:
        compacted.pop(key, None)
        compacted[key] = value
    world.log = list(compacted.items())
    before = durable(world.state)
    world.restart()
    assert durable(world.state) == before


def test_a_member_that_rejoins_gets_its_tasks_back() -> None:
    world = StreamsWorld()
    world.settle(world.report("a", 0))
    assert world.report("a", 0).tasks == ALL


def test_a_lost_response_is_repeated() -> None:
    world = StreamsWorld()
    last = world.settle(world.report("a", 0), world.report("b", 0))
    world.report("b", -1)
    before = last["a"]
    told = world.report("a", before.epoch)
    assert told.tasks == ALL
    # The response did not arrive: the member is still in its old epoch with its old tasks.
    assert before.tasks is not None
    again = world.report("a", before.epoch, active=before.tasks.active, standby={}, warmup={})
    assert (again.epoch, again.tasks) == (told.epoch, ALL)


def test_a_member_of_another_epoch_is_fenced() -> None:
    world = StreamsWorld()
    world.settle(world.report("a", 0))
    assert refused(lambda: world.report("a", 9)) is KafkaCode.FENCED_MEMBER_EPOCH
    assert refused(lambda: world.report("a", 1)) is KafkaCode.FENCED_MEMBER_EPOCH
    assert refused(lambda: world.report("b", 2)) is KafkaCode.UNKNOWN_MEMBER_ID


def test_a_shutdown_is_told_to_everybody_until_the_group_is_empty() -> None:
    world = StreamsWorld()
    last = world.settle(world.report("a", 0), world.report("b", 0))
    asked = world.report("a", last["a"].epoch, shutdown_application=True)
    assert codes(asked) == [StatusCode.SHUTDOWN_APPLICATION]
    assert codes(world.report("b", last["b"].epoch)) == [StatusCode.SHUTDOWN_APPLICATION]
    world.report("a", -1)
    assert codes(world.report("b", last["b"].epoch)) == [StatusCode.SHUTDOWN_APPLICATION]
    world.report("b", -1)
    assert codes(world.report("c", 0)) == []


def test_a_shutdown_may_come_with_the_leave() -> None:
    world = StreamsWorld()
    last = world.settle(world.report("a", 0), world.report("b", 0))
    world.report("a", -1, shutdown_application=True)
    reply = world.report("b", last["b"].epoch)
    assert codes(reply) == [StatusCode.SHUTDOWN_APPLICATION]
    assert "member a " in reply.statuses[0].detail


def test_an_older_topology_is_stale_and_another_one_refused() -> None:
    world = StreamsWorld()
    world.report("a", 0, topology=replace(WORD_COUNT, epoch=3))
    assert codes(world.report("b", 0)) == [StatusCode.STALE_TOPOLOGY]
    other = replace(word_count(5), epoch=3)
    assert refused(lambda: world.report("c", 0, topology=other)) is KafkaCode.INVALID_REQUEST
    newer = replace(WORD_COUNT, epoch=4)
    assert refused(lambda: world.report("c", 0, topology=newer)) is KafkaCode.INVALID_REQUEST


def test_endpoints_are_told_when_they_change() -> None:
    world = StreamsWorld()
    here, there = Endpoint("here", 1), Endpoint("there", 2)
    first = world.report("a", 0, endpoint=here)
    both = {"orders": (0, 1), REPARTITION: (0, 1)}
    assert first.endpoints == [EndpointPartitions(here, both, {})]
    seen = world.report("a", first.epoch, endpoint_epoch=first.endpoint_epoch)
    assert seen.endpoints is None
    last = world.settle(first, world.report("b", 0, endpoint=there))
    shown = world.report("b", last["b"].epoch, endpoint_epoch=-1).endpoints
    assert shown is not None
    assert [each.endpoint for each in shown] == [here, there]
    for topic in ("orders", REPARTITION):
        parts = [each.active.get(topic, ()) for each in shown]
        assert sorted(number for part in parts for number in part) == [0, 1]
    known = world.report("b", last["b"].epoch).endpoint_epoch
    world.report("a", -1)
    left = world.report("b", last["b"].epoch, endpoint_epoch=known)
    assert left.endpoints == [EndpointPartitions(there, both, {})]


def test_a_topic_that_a_subtopology_repeats_is_told_once() -> None:
    world = StreamsWorld()
    here = Endpoint("here", 1)
    topology = Topology(0, (subtopology(0, "orders", "orders"), subtopology(1, "orders")))
    reply = world.report("a", 0, endpoint=here, topology=topology)
    assert reply.endpoints == [EndpointPartitions(here, {"orders": (0, 1)}, {})]


def test_heartbeats_take_work_for_each_subtopology_once() -> None:
    def work(size: int) -> int:
        world = StreamsWorld(checks_replay=False)
        topology = Topology(0, tuple(subtopology(number, "orders") for number in range(size)))
        reply = world.report("a", 0, endpoint=Endpoint("here", 1), topology=topology)
        world.confirm(reply)
        assert reply.tasks is not None
        active = reply.tasks.active
        beat = partial(world.report, "a", reply.epoch, active=active, standby={}, warmup={})
        return steps(lambda: beat(endpoint_epoch=-1))

    assert work(400) < 5 * work(100)


def test_endpoints_with_too_many_partitions_are_not_told() -> None:
    def told(topics: int) -> list[EndpointPartitions] | None:
        names = [f"t{number}" for number in range(topics)]
        world = StreamsWorld(checks_replay=False)
        world.image = image_of(**dict.fromkeys(names, 9))
        topology = Topology(0, (subtopology(0, *names),))
        reply = world.report("a", 0, endpoint=Endpoint("here", 1), topology=topology)
        assert reply.tasks is not None
        assert reply.tasks.active == {"0": tuple(range(9))}
        return reply.endpoints

    found = told(2_500)
    assert found is not None
    assert sum(map(len, found[0].active.values())) == 22_500
    # As if nothing had changed.
    assert told(2_501) is None


def test_a_small_topic_beside_a_large_one_costs_nothing() -> None:
    def work(partitions: int) -> int:
        names = [f"t{number}" for number in range(50)]
        world = StreamsWorld(checks_replay=False)
        world.image = image_of(large=partitions, **dict.fromkeys(names, 1))
        topology = Topology(0, (subtopology(0, "large", *names),))
        reply = world.report("a", 0, endpoint=Endpoint("here", 1), topology=topology)
        assert reply.endpoints is not None
        assert reply.endpoints[0].active["t0"] == (0,)
        world.confirm(reply)
        return steps(lambda: world.report("a", reply.epoch, endpoint_epoch=-1))

    assert work(1_000) == work(10)


def test_a_member_that_waits_for_tasks_does_not_compare_them_with_each_heartbeat() -> None:
    def work(partitions: int) -> int:
        world = StreamsWorld(checks_replay=False)
        world.image = image_of(orders=partitions)
        topology = Topology(0, (subtopology(0, "orders"),))
        world.report("a", 0, topology=topology)
        epoch = world.report("b", 0, topology=topology).epoch
        assert world.streams().members["b"].current.state is StreamsMemberState.UNRELEASED_TASKS
        world.report("b", epoch)
        return steps(lambda: world.report("b", epoch))

    assert work(1_000) == work(10)


def test_intervals_are_short_while_a_group_settles() -> None:
    world = StreamsWorld()
    assert world.report("a", 0).interval_ms == 50
    world.now_ms += 60_000
    assert world.report("a", 2, active=ALL.active, standby={}, warmup={}).interval_ms == 5_000
    world.report("b", 0)
    world.now_ms += 60_000
    assert world.report("b", 3).interval_ms <= 500


def test_a_group_may_have_an_interval_and_a_session_timeout_of_its_own() -> None:
    world = StreamsWorld()
    world.image.group_overrides[GROUP] = {
        "streams.session.timeout.ms": "50000",
        "streams.heartbeat.interval.ms": "7000",
    }
    world.settle(world.report("a", 0))
    world.pass_time(49_999)
    assert world.report("a", 2).interval_ms == 7_000


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"member_id": ""}, "MemberId"),
        ({"group_id": ""}, "GroupId"),
        ({"rack_id": ""}, "RackId"),
        ({"instance_id": "i"}, "Static membership"),
        ({"epoch": -2}, "InstanceId"),
        ({"epoch": -3}, "MemberEpoch"),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs"),
        ({"active": {"0": (0,)}}, "ActiveTasks"),
        ({"standby": {"0": (0,)}}, "StandbyTasks"),
        ({"warmup": {"0": (0,)}}, "WarmupTasks"),
        ({"active": None}, "all must be non-null"),
        ({"topology": None}, "Topology must"),
        ({"epoch": 1}, "Topology can only"),
        ({"has_task_offsets": True}, "TaskOffsets"),
        (
            {"topology": Topology(0, (subtopology(0, source_topic_patterns=("a.*",)),))},
            "Regular expressions",
        ),
    ],
)
def test_bad_requests_are_refused(changes: dict[str, Any], text: str) -> None:
    world = StreamsWorld()
    with pytest.raises(KafkaError, match=text) as error:
        world.report("a", 0, **changes)
    assert error.value.code is KafkaCode.INVALID_REQUEST
    assert world.state.groups == {}


def test_a_topology_that_fits_no_batch_is_refused() -> None:
    names = tuple(f"{number:0>200}" for number in range(3_000))
    topology = Topology(0, (subtopology(0, *names),))
    code = refused(lambda: StreamsWorld().report("a", 0, topology=topology))
    assert code is KafkaCode.STREAMS_INVALID_TOPOLOGY
    long = Topology(0, (subtopology(0, "x", changelog_topics=(InternalTopic("c", 1, 0),)),))
    code = refused(lambda: StreamsWorld().report("a", 0, topology=long))
    assert code is KafkaCode.STREAMS_INVALID_TOPOLOGY


def test_reported_tasks_must_be_of_the_topology() -> None:
    world = StreamsWorld()
    reply = world.report("a", 0)

    def claim(**active: tuple[int, ...]) -> KafkaCode:
        tasks = {name.removeprefix("_"): numbers for name, numbers in active.items()}
        return refused(lambda: world.report("a", reply.epoch, active=tasks, standby={}, warmup={}))

    assert claim(_7=(0,)) is KafkaCode.INVALID_REQUEST
    assert claim(_0=(2,)) is KafkaCode.INVALID_REQUEST


def test_a_group_has_a_largest_size_and_may_be_turned_off() -> None:
    world = StreamsWorld()
    world.settings = replace(AT_ONCE, streams=replace(AT_ONCE.streams, members_max=1))
    world.report("a", 0)
    world.report("a", 0)
    assert refused(lambda: world.report("b", 0)) is KafkaCode.GROUP_MAX_SIZE_REACHED
    world.settings = replace(AT_ONCE, streams=replace(AT_ONCE.streams, is_served=False))
    assert refused(lambda: world.report("a", 2)) is KafkaCode.UNSUPPORTED_VERSION


# -- beside groups of other kinds -------------------------------------------------------


def test_an_empty_classic_group_becomes_a_streams_group_and_keeps_its_offsets() -> None:
    world = StreamsWorld()
    world.commit(7)
    world.report("a", 0)
    assert world.committed() == 7
    assert set(world.streams().members) == {"a"}


def test_a_group_of_another_kind_is_not_taken_over() -> None:
    world = StreamsWorld()
    world.stable_group(1)
    assert refused(lambda: world.report("a", 0)) is KafkaCode.GROUP_ID_NOT_FOUND
    world = StreamsWorld()
    world.beat("m1", 0)
    assert refused(lambda: world.report("a", 0)) is KafkaCode.GROUP_ID_NOT_FOUND


def test_members_of_other_protocols_are_refused_while_there_are_members() -> None:
    world = StreamsWorld()
    world.report("a", 0)
    assert refused(lambda: world.beat("m1", 0)) is KafkaCode.GROUP_ID_NOT_FOUND
    assert refused(world.join) is KafkaCode.INCONSISTENT_GROUP_PROTOCOL
    assert refused(lambda: world.heartbeat("a", 1)) is KafkaCode.UNKNOWN_MEMBER_ID
    world.report("a", -1)
    world.join()
    assert world.classic().members


def test_a_streams_group_is_listed_described_deleted_and_expires() -> None:
    world = StreamsWorld()
    reply = world.report("a", 0)
    world.commit(3, member_id="a", generation=reply.epoch)
    [row] = admin.list_groups(world.state, states=[], types=["Streams"])
    assert (row.protocol_type, row.type) == ("streams", "streams")
    env = world.env(None)  # type: ignore[arg-type]  # nobody waits for a reply
    assert requests.describe_streams(world.state, GROUP, env).reply is world.streams()
    assert refused(lambda: requests.describe_streams(world.state, "x", env)) is (
        KafkaCode.GROUP_ID_NOT_FOUND
    )
    assert refused(lambda: admin.describe(world.state, GROUP)) is KafkaCode.GROUP_ID_NOT_FOUND
    assert refused(lambda: admin.delete_group(world.state, GROUP)) is KafkaCode.NON_EMPTY_GROUP
    world.report("a", -1)
    world.step(lambda state, env: admin.delete_group(state, GROUP))
    assert world.state.groups == {}
    assert world.state.offsets == {}
    world.report("a", 0)
    world.report("a", -1)
    world.step(lambda state, env: admin.expire_offsets(state, GROUP, env))
    assert world.state.groups == {}
