"""Transcripts of consumer groups (KIP-848)."""

from dataclasses import replace

import pytest

from millstream.coordinators.codecs.changes import MemberState
from millstream.coordinators.consumer.group import STATIC_LEAVING_EPOCH
from millstream.coordinators.consumer.heartbeat import HeartbeatRequest
from millstream.coordinators.consumer.pattern import PatternMatch
from millstream.coordinators.groups import requests
from millstream.errors import KafkaCode
from tests.coordinators.world import (
    GROUP,
    REBALANCE_MS,
    VisibleTopics,
    World,
    refused,
    topic_id,
)

ORDERS = topic_id(0)
PAYMENTS = topic_id(1)


def all_of(count: int) -> dict[object, tuple[int, ...]]:
    return {ORDERS: tuple(range(count))}


def test_the_first_member_gets_everything_at_once() -> None:
    reply = World().beat("m1", 0)
    assert reply.epoch == 1
    assert reply.assignment == all_of(4)


def test_a_second_member_gets_its_share_when_the_first_has_given_it_up() -> None:
    world = World()
    world.beat("m1", 0)
    second = world.beat("m2", 0)
    assert (second.epoch, second.assignment) == (2, {})
    told = world.beat("m1", 1, owned=all_of(4))
    # It stays in its epoch until it says that the partitions are gone.
    assert told.epoch == 1
    kept = told.assignment
    assert kept is not None
    assert len(kept[ORDERS]) == 2
    assert world.beat("m2", 2).assignment is None
    assert world.beat("m1", 1, owned=all_of(4)).epoch == 1
    assert world.beat("m1", 1, owned=kept).epoch == 2
    given = world.beat("m2", 2).assignment
    assert given is not None
    assert set(given[ORDERS]) | set(kept[ORDERS]) == {0, 1, 2, 3}
    assert world.consumers().state_name == "Stable"


def test_a_report_older_than_the_last_assignment_frees_nothing() -> None:
    world = World()
    world.beat("m1", 0)
    world.beat("m2", 0)
    # Sent before the member has taken in what its join gave it.
    assert world.beat("m1", 1, owned={}).epoch == 1
    assert world.beat("m2", 2).assignment is None


def test_a_group_may_have_a_session_timeout_and_an_interval_of_its_own() -> None:
    world = World()
    world.image.group_overrides[GROUP] = {
        "consumer.session.timeout.ms": "50000",
        "consumer.heartbeat.interval.ms": "7000",
    }
    world.beat("m1", 0)
    world.pass_time(49_999)
    assert world.beat("m1", 1).interval_ms == 7_000
    # Set while the group lives: it counts from the next heartbeat on.
    world.image.group_overrides.clear()
    assert world.beat("m1", 1).interval_ms == 5_000
    world.pass_time(45_000)
    assert world.consumers().members == {}


def test_a_member_may_subscribe_to_nothing_and_change_its_mind() -> None:
    world = World()
    assert world.beat("m1", 0, topics=()).assignment == {}
    assert world.beat("m1", 1, topics=("orders",)).assignment == all_of(4)


def test_a_heartbeat_without_news_writes_nothing() -> None:
    world = World()
    world.beat("m1", 0)
    world.beat("m1", 1, owned=all_of(4))
    before = len(world.log)
    reply = world.beat("m1", 1)
    assert reply.assignment is None
    assert len(world.log) == before


def test_reports_are_frequent_after_a_change_and_then_as_configured() -> None:
    world = World()
    # More often, and a busy node would not answer before librdkafka gives up.
    assert world.beat("m1", 0).interval_ms == 200
    world.now_ms += 4_000
    assert world.beat("m1", 1).interval_ms == 2_000
    world.now_ms += 60_000
    assert world.beat("m1", 1).interval_ms == 5_000
    world.beat("m2", 0)
    world.now_ms += 60_000
    assert world.beat("m2", 2).interval_ms <= 500


def test_a_silent_members_partitions_go_to_the_others() -> None:
    world = World()
    world.beat("m1", 0)
    world.beat("m2", 0)
    world.pass_time(44_000)
    world.beat("m2", 2)
    world.pass_time(2_000)
    assert list(world.consumers().members) == ["m2"]
    assert world.beat("m2", 2).assignment == all_of(4)
    assert refused(lambda: world.beat("m1", 1)) is KafkaCode.UNKNOWN_MEMBER_ID


def test_a_member_is_asked_for_partitions_only_when_it_has_said_that_it_has_them() -> None:
    world = World()
    world.beat("m1", 0)
    world.beat("m2", 0)
    # Told now to have two of the four it has not taken in yet, it might find nothing to do.
    assert world.beat("m1", 1).assignment == all_of(4)
    assert world.beat("m1", 1, owned=all_of(4)).assignment == {ORDERS: (0, 1)}


def test_a_member_that_missed_what_it_is_to_give_up_is_told_again() -> None:
    world = World()
    world.beat("m1", 0)
    world.beat("m2", 0)
    # Its client did not wait for the answer to the first, and sends the same again.
    told = [world.beat("m1", 1, owned=all_of(4)).assignment for _ in range(2)]
    assert told == [{ORDERS: (0, 1)}] * 2
    assert world.beat("m1", 1, owned={ORDERS: (0, 1)}).epoch == 2


def test_a_member_that_missed_what_it_gets_is_told_again_until_it_has_it() -> None:
    world = World()
    world.beat("m1", 0)
    world.beat("m2", 0)
    world.beat("m1", 1, owned=all_of(4))
    world.beat("m1", 1, owned={ORDERS: (0, 1)})
    told = [world.beat("m2", 2).assignment for _ in range(2)]
    assert told == [{ORDERS: (2, 3)}] * 2
    assert world.beat("m2", 2, owned={ORDERS: (2, 3)}).assignment is None


def test_after_a_restart_a_member_is_asked_only_for_what_it_says_that_it_has() -> None:
    world = World()
    world.beat("m1", 0)
    world.restart()
    # Back with a new connection, it says everything, and has not applied its assignment yet.
    full = {"topics": ("orders",), "rebalance_timeout_ms": REBALANCE_MS}
    assert world.beat("m1", 1, owned={}, **full).assignment == all_of(4)
    world.beat("m2", 0)
    assert world.beat("m1", 1).assignment == all_of(4)
    assert world.beat("m1", 1, owned=all_of(4)).assignment == {ORDERS: (0, 1)}


@pytest.mark.parametrize("acknowledges", [True, False])
def test_a_member_that_never_gives_up_partitions_is_out_after_its_rebalance_timeout(
    acknowledges: bool,
) -> None:
    world = World()
    world.beat("m1", 0)
    world.beat("m2", 0)
    world.beat("m1", 1, owned=all_of(4) if acknowledges else None)
    for _ in range(REBALANCE_MS // 1000 + 1):
        world.pass_time(1_000)
        if "m1" in world.consumers().members:
            world.beat("m1", 1)
        world.beat("m2", world.consumers().members["m2"].current.epoch)
    assert list(world.consumers().members) == ["m2"]


def test_a_member_that_leaves_gives_its_partitions_back() -> None:
    world = World()
    world.beat("m1", 0)
    world.beat("m1", -1)
    group = world.consumers()
    assert (group.state_name, group.owned_epochs, group.target) == ("Empty", {}, {})
    assert world.beat("m2", 0).assignment == all_of(4)


@pytest.mark.parametrize("epoch", [5, 2])
def test_a_member_of_another_epoch_is_fenced(epoch: int) -> None:
    world = World()
    world.beat("m1", 0)
    assert refused(lambda: world.beat("m1", epoch)) is KafkaCode.FENCED_MEMBER_EPOCH


def test_a_member_that_missed_its_last_answer_is_believed() -> None:
    world = World()
    world.beat("m1", 0)
    world.set_topics(orders=6)
    assert world.beat("m1", 1).epoch == 2
    told = world.beat(
        "m1", 1, owned=all_of(4), rebalance_timeout_ms=REBALANCE_MS, topics=("orders",)
    )
    assert (told.epoch, told.assignment) == (2, all_of(6))


def test_a_member_that_begins_anew_gets_its_partitions_back() -> None:
    world = World()
    world.beat("m1", 0)
    again = world.beat("m1", 0)
    assert again.assignment == all_of(4)


def test_added_partitions_are_assigned() -> None:
    world = World()
    world.beat("m1", 0)
    world.set_topics(orders=6)
    assert world.beat("m1", 1).assignment == all_of(6)


def test_a_change_of_subscription_moves_the_member() -> None:
    world = World()
    world.set_topics(orders=4, payments=2)
    world.beat("m1", 0)
    told = world.beat("m1", 1, topics=("payments",), owned=all_of(4))
    assert told.assignment == {}
    reply = world.beat("m1", 1, owned={})
    assert reply.assignment == {PAYMENTS: (0, 1)}


def test_a_pattern_follows_topics_as_they_come() -> None:
    world = World()
    world.set_topics(orders=1)
    assert world.beat("m1", 0, topics=(), pattern="(orders|pay.*)").assignment == all_of(1)
    world.set_topics(orders=1, payments=2)
    assert world.beat("m1", 1).assignment == {ORDERS: (0,), PAYMENTS: (0, 1)}
    world.beat("m1", -1)
    assert world.consumers().patterns == {}


def test_a_pattern_matches_what_its_member_may_describe() -> None:
    world = World()
    world.set_topics(orders=1, payments=2)
    few = VisibleTopics(1, lambda name: name == "orders")
    pattern = "(orders|pay.*)"
    assert world.beat("m1", 0, topics=(), pattern=pattern, visible=few).assignment == all_of(1)
    assert world.beat("m1", 1, visible=few, owned=all_of(1)).assignment is None
    # Permissions have changed: it may see more, and then nothing.
    more = VisibleTopics(2, lambda name: True)
    both = {ORDERS: (0,), PAYMENTS: (0, 1)}
    assert world.beat("m1", 1, visible=more).assignment == both
    nothing = VisibleTopics(3, lambda name: False)
    assert world.beat("m1", 2, visible=nothing, owned=both).assignment == {}


def test_a_new_topic_is_matched_only_for_a_member_that_may_describe_it() -> None:
    world = World()
    world.set_topics(orders=1)
    few = VisibleTopics(1, lambda name: name == "orders")
    world.beat("m1", 0, topics=(), pattern=".*", visible=few)
    world.beat("m2", 0, topics=("orders",))
    world.set_topics(orders=1, payments=2)
    # Neither its end nor another member's heartbeat shows it more.
    world.beat("m2", 2)
    world.beat("m2", -1)
    world.beat("m1", 1, visible=few, owned=all_of(1))
    assert world.consumers().patterns[".*"].topics == ("orders",)


def test_matches_of_another_pattern_or_of_before_are_replaced_by_the_next_heartbeat() -> None:
    world = World()
    world.set_topics(orders=1)
    world.beat("m1", 0, topics=(), pattern=".*")
    world.set_topics(orders=1, payments=2)
    # Meanwhile another request has changed what the decision finds.
    late = PatternMatch("other.*", ("payments",), world.topics_version, 0)
    request = HeartbeatRequest(GROUP, "m1", 1, "c", "/127.0.0.1", matched=late)
    world.step(lambda state, env: requests.consumer_heartbeat(state, request, env))
    assert world.consumers().patterns[".*"].topics == ("orders",)
    world.beat("m1", 1)
    assert world.consumers().patterns[".*"].topics == ("orders", "payments")


def test_a_pattern_that_cannot_be_understood_is_refused() -> None:
    world = World()
    code = refused(lambda: world.beat("m1", 0, topics=(), pattern="(orders"))
    assert code is KafkaCode.INVALID_REGULAR_EXPRESSION
    assert world.state.groups == {}


def test_a_topic_that_does_not_exist_is_waited_for() -> None:
    world = World()
    assert world.beat("m1", 0, topics=("later",)).assignment == {}
    world.set_topics(orders=4, later=1)
    assert world.beat("m1", 1).assignment == {topic_id(1): (0,)}


def test_a_member_may_name_20_000_topics() -> None:
    # A client that matches a pattern itself sends what it matches.
    names = tuple(f"t{number:05}" for number in range(20_000))
    world = World(checks_replay=False)
    world.beat("m1", 0, topics=("orders", *names[1:]))
    world.beat("m2", 0, topics=("orders", *names[1:]))
    group = world.consumers()
    assert group.members["m1"].subscription is group.members["m2"].subscription
    assert group.subscriptions.different_names == 20_000
    assert sum(map(len, group.target["m2"].values())) == 2


def test_the_assignor_that_members_ask_for_is_used() -> None:
    world = World()
    world.set_topics(a=3, b=3)
    both = ("a", "b")
    world.beat("m1", 0, topics=both, assignor="range")
    world.beat("m2", 0, topics=both, assignor="range")
    target = world.consumers().target
    assert target["m1"] == {topic_id(0): (0, 1), topic_id(1): (0, 1)}
    assert target["m2"] == {topic_id(0): (2,), topic_id(1): (2,)}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"topics": None}, KafkaCode.INVALID_REQUEST),
        ({"topics": tuple(f"t{n}" for n in range(20_001))}, KafkaCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, KafkaCode.INVALID_REQUEST),
        ({"owned": {ORDERS: (0,)}}, KafkaCode.INVALID_REQUEST),
        ({"instance_id": ""}, KafkaCode.INVALID_REQUEST),
        ({"rack_id": ""}, KafkaCode.INVALID_REQUEST),
        ({"member_id": ""}, KafkaCode.INVALID_REQUEST),
        ({"group_id": ""}, KafkaCode.INVALID_REQUEST),
        ({"epoch": -3}, KafkaCode.INVALID_REQUEST),
        ({"epoch": STATIC_LEAVING_EPOCH}, KafkaCode.INVALID_REQUEST),
        ({"epoch": 1}, KafkaCode.GROUP_ID_NOT_FOUND),
        ({"epoch": -1}, KafkaCode.GROUP_ID_NOT_FOUND),
        ({"assignor": "mine"}, KafkaCode.UNSUPPORTED_ASSIGNOR),
    ],
)
def test_bad_requests_are_refused_and_change_nothing(
    changes: dict[str, object], code: KafkaCode
) -> None:
    world = World()
    arguments = {"member_id": "m1", "epoch": 0, **changes}
    assert refused(lambda: world.beat(**arguments)) is code
    assert world.state.groups == {}


def test_a_full_group_refuses_new_members() -> None:
    world = World()
    world.settings = replace(world.settings, consumer_members_max=1)
    world.beat("m1", 0)
    assert refused(lambda: world.beat("m2", 0)) is KafkaCode.GROUP_MAX_SIZE_REACHED
    assert world.beat("m1", 1).epoch == 1


def test_a_static_member_keeps_its_partitions_while_it_is_away() -> None:
    world = World()
    world.beat("m1", 0, instance_id="i1")
    world.beat("m1", STATIC_LEAVING_EPOCH, instance_id="i1")
    back = world.beat("m2", 0, instance_id="i1")
    assert (back.epoch, back.assignment) == (1, all_of(4))
    assert list(world.consumers().members) == ["m2"]
    fenced = refused(lambda: world.beat("m1", 1, instance_id="i1"))
    assert fenced is KafkaCode.FENCED_INSTANCE_ID


def test_a_static_member_that_stays_away_loses_its_place() -> None:
    world = World()
    world.beat("m1", 0, instance_id="i1")
    world.beat("m1", STATIC_LEAVING_EPOCH, instance_id="i1")
    world.pass_time(45_001)
    assert world.consumers().members == {}


def test_an_instance_that_is_in_use_is_not_taken_over() -> None:
    world = World()
    world.beat("m1", 0, instance_id="i1")
    code = refused(lambda: world.beat("m2", 0, instance_id="i1"))
    assert code is KafkaCode.UNRELEASED_INSTANCE_ID


def test_an_instance_is_free_when_its_member_has_joined_as_another() -> None:
    world = World()
    world.beat("m1", 0, instance_id="i1")
    world.beat("m1", 0, instance_id="i2")
    assert world.consumers().static_members == {"i2": "m1"}
    world.beat("m1", -1, instance_id="i2")
    world.beat("m2", 0, instance_id="i1")
    assert world.consumers().static_members == {"i1": "m2"}


def test_commits_are_checked_against_the_members_epoch() -> None:
    world = World()
    world.beat("m1", 0)
    assert world.commit(1, member_id="m1", generation=1) is KafkaCode.NONE
    stale = refused(lambda: world.commit(2, member_id="m1", generation=2))
    assert stale is KafkaCode.STALE_MEMBER_EPOCH
    unknown = refused(lambda: world.commit(2, member_id="m9", generation=1))
    assert unknown is KafkaCode.UNKNOWN_MEMBER_ID
    assert world.committed() == 1


def test_after_a_restart_everyone_goes_on_in_their_epoch() -> None:
    world = World()
    world.beat("m1", 0)
    world.beat("m2", 0)
    world.beat("m1", 1, owned=all_of(4))
    world.restart()
    assert world.consumers().members["m1"].current.state is MemberState.UNREVOKED_PARTITIONS
    assert world.beat("m1", 1, owned={ORDERS: (0, 1)}).epoch == 2
    world.pass_time(45_001)
    assert world.consumers().members == {}


def test_the_consumer_protocol_can_be_turned_off() -> None:
    world = World()
    world.settings = replace(world.settings, serves_consumer_protocol=False)
    assert refused(lambda: world.beat("m1", 0)) is KafkaCode.UNSUPPORTED_VERSION


def test_compaction_may_put_an_assignment_before_its_members_metadata() -> None:
    world = World()
    world.beat("m1", 0)
    written = len(world.log)
    # The member's record is written again, and its assignment is not.
    world.beat("m1", 1, owned=all_of(4), rebalance_timeout_ms=REBALANCE_MS + 1)
    assert len(world.log) == written + 1
    world.log = world.compacted()
    world.restart()
    assert world.consumers().members["m1"].current.assigned == all_of(4)
    assert world.beat("m1", 1).epoch == 1
