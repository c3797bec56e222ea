"""Who may commit, what is kept, and when it is forgotten."""

import pytest

from millstream.coordinators.groups import admin, offsets
from millstream.errors import KafkaCode
from tests.coordinators.world import GROUP, SESSION_MS, World, refused

DAY_MS = 24 * 3_600_000


def test_a_consumer_without_a_group_commits_and_makes_one() -> None:
    world = World()
    assert world.commit(42, metadata="note") is KafkaCode.NONE
    found = world.state.committed(GROUP, "orders", 0)
    assert found is not None
    assert (found.offset, found.leader_epoch, found.metadata) == (42, 3, "note")
    assert GROUP in world.replayed().groups


def test_a_member_commits_in_its_generation_only() -> None:
    world = World()
    [only] = world.stable_group(1)
    assert world.commit(1, member_id=only, generation=1) is KafkaCode.NONE
    for changes, code in (
        ({"member_id": only, "generation": 2}, KafkaCode.ILLEGAL_GENERATION),
        ({"member_id": "other", "generation": 1}, KafkaCode.UNKNOWN_MEMBER_ID),
        ({}, KafkaCode.UNKNOWN_MEMBER_ID),
        (
            {"member_id": only, "generation": 1, "instance_id": "i"},
            KafkaCode.UNKNOWN_MEMBER_ID,
        ),
    ):
        assert refused(lambda changes=changes: world.commit(9, **changes)) is code
    assert world.committed() == 1


def test_a_fenced_instance_cannot_commit() -> None:
    world = World()
    old = world.joined(world.join(instance_id="i1")).member_id
    world.sync_with(old, 1, {}, "i1")
    world.join(instance_id="i1")
    code = refused(lambda: world.commit(9, member_id=old, generation=1, instance_id="i1"))
    assert code is KafkaCode.FENCED_INSTANCE_ID
    assert world.committed() is None


def test_a_member_between_join_and_sync_is_told_to_sync_first() -> None:
    world = World()
    only = world.joined(world.join()).member_id
    code = refused(lambda: world.commit(1, member_id=only, generation=1))
    assert code is KafkaCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    ("knows_member_epochs", "code"),
    [(True, KafkaCode.GROUP_ID_NOT_FOUND), (False, KafkaCode.ILLEGAL_GENERATION)],
)
def test_a_generation_of_a_group_that_is_not_there_is_refused(
    knows_member_epochs: bool, code: KafkaCode
) -> None:
    world = World()
    changes = {"generation": 3, "member_id": "m", "knows_member_epochs": knows_member_epochs}
    assert refused(lambda: world.commit(1, **changes)) is code
    assert world.state.groups == {}


def test_a_note_that_is_too_long_is_refused_alone() -> None:
    world = World()
    assert world.commit(1, metadata="x" * 4097) is KafkaCode.OFFSET_METADATA_TOO_LARGE
    assert world.commit(2, metadata="x" * 4096) is KafkaCode.NONE
    assert world.committed() == 2


def test_a_commit_keeps_its_member_alive() -> None:
    world = World()
    [only] = world.stable_group(1)
    world.pass_time(SESSION_MS - 1)
    world.commit(1, member_id=only, generation=1)
    world.pass_time(SESSION_MS - 1)
    assert world.heartbeat(only, 1) is KafkaCode.NONE


def fetched(world: World, **changes: object) -> list[offsets.FetchedTopic]:
    arguments = {
        "topics": None,
        "member_id": None,
        "member_epoch": -1,
        "require_stable": True,
        **changes,
    }
    ticket = world.step(lambda state, env: offsets.fetch(state, GROUP, **arguments))
    found = world.replies[ticket]
    assert isinstance(found, list)
    return found


def test_all_offsets_or_those_asked_for_are_fetched() -> None:
    world = World()
    world.commit(5, partition=1)
    [topic] = fetched(world)
    assert [(index, value.offset) for index, value in topic.partitions] == [(1, 5)]
    [topic] = fetched(world, topics=[("orders", [0, 1])])
    assert [index for index, value in topic.partitions if value is None] == [0]


def test_an_unknown_group_has_no_offsets_and_no_error() -> None:
    assert fetched(World()) == []


def delete(world: World, topic: str) -> KafkaCode:
    ticket = world.step(lambda state, env: offsets.delete(state, GROUP, [(topic, [0])]))
    return world.replies[ticket][0][0]


def test_offsets_of_a_topic_that_is_read_are_not_deleted() -> None:
    world = World()
    [only] = world.stable_group(1)
    world.commit(1, member_id=only, generation=1)
    world.commit(1, topic="old", member_id=only, generation=1)
    assert delete(world, "orders") is KafkaCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert delete(world, "old") is KafkaCode.NONE
    assert (world.committed(), world.committed(topic="old")) == (1, None)


def test_offsets_of_an_unknown_group_cannot_be_deleted() -> None:
    assert refused(lambda: delete(World(), "orders")) is KafkaCode.GROUP_ID_NOT_FOUND


def test_a_deleted_topic_takes_its_offsets_along() -> None:
    world = World()
    world.commit(1)
    world.commit(2, topic="other")
    gone = offsets.forget_topics(world.state, ["orders"])
    assert [(each.topic, each.partition) for each in gone[GROUP]] == [("orders", 0)]


def expire(world: World) -> None:
    world.step(lambda state, env: admin.expire_offsets(state, GROUP, env))


def test_offsets_without_a_group_go_after_the_retention_and_take_the_group_along() -> None:
    world = World()
    world.commit(1)
    world.pass_time(7 * DAY_MS - 1)
    expire(world)
    assert world.committed() == 1
    world.pass_time(1)
    expire(world)
    assert world.committed() is None
    assert world.state.groups == {}


def test_offsets_of_a_live_group_never_go() -> None:
    world = World()
    [only] = world.stable_group(1)
    world.commit(1, member_id=only, generation=1)
    for _ in range(8):
        world.now_ms += DAY_MS
        world.heartbeat(only, 1)
    expire(world)
    assert world.committed() == 1


def test_the_retention_of_an_empty_group_counts_from_when_it_became_empty() -> None:
    world = World()
    [only] = world.stable_group(1)
    world.commit(1, member_id=only, generation=1)
    world.now_ms += 6 * DAY_MS
    world.leave(only)
    world.now_ms += 6 * DAY_MS
    expire(world)
    assert world.committed() == 1
    world.now_ms += DAY_MS
    expire(world)
    assert world.committed() is None


def test_a_retention_that_the_client_asked_for_holds() -> None:
    world = World()
    world.commit(1, retention_ms=1000)
    world.now_ms += 1000
    expire(world)
    assert world.committed() is None


def test_the_longest_retention_is_for_ever() -> None:
    world = World()
    world.commit(1, retention_ms=2**63 - 1)
    world.now_ms += 365 * DAY_MS
    expire(world)
    assert world.committed() == 1
