"""Groups that change between the protocols while they run."""

from dataclasses import replace

from millstream.coordinators.classic.group import ClassicState
from millstream.coordinators.codecs.embedded import (
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from millstream.errors import KafkaCode
from tests.coordinators.world import GROUP, World, refused, topic_id

ORDERS = topic_id(0)
ALL = encode_assignment({"orders": [0, 1, 2, 3]}, version=0)


def classic_group_of_one(world: World) -> str:
    only = world.joined(world.join()).member_id
    world.sync_with(only, 1, {only: ALL})
    return only


def test_a_new_member_turns_a_classic_group_into_a_consumer_group() -> None:
    world = World()
    old = classic_group_of_one(world)
    new = world.beat("new", 0)
    assert new.assignment == {}
    group = world.consumers()
    assert group.members[old].speaks_classic
    assert group.members[old].current.assigned == {ORDERS: (0, 1, 2, 3)}
    assert world.heartbeat(old, 1) is KafkaCode.REBALANCE_IN_PROGRESS


def test_classic_members_join_and_sync_in_a_consumer_group() -> None:
    world = World()
    old = classic_group_of_one(world)
    world.beat("new", 0)
    # It owns all four; told to keep two, it gives the others up by joining again.
    asked = world.joined(world.join(old, protocols=subscription([0, 1, 2, 3])))
    assert asked.generation == 1
    kept = decode_assignment(world.synced(world.sync_with(old, 1, {})).assignment)["orders"]
    assert len(kept) == 2
    assert world.heartbeat(old, 1) is KafkaCode.REBALANCE_IN_PROGRESS
    done = world.joined(world.join(old, protocols=subscription(kept)))
    assert done.generation == 2
    again = decode_assignment(world.synced(world.sync_with(old, 2, {})).assignment)
    assert again == {"orders": kept}
    assert world.heartbeat(old, 2) is KafkaCode.NONE
    given = world.beat("new", 2).assignment
    assert given is not None
    assert set(given[ORDERS]) == {0, 1, 2, 3} - set(kept)


def subscription(owned: list[int]) -> tuple[tuple[str, bytes], ...]:
    """A subscription of version 1: what the member owns comes with it."""
    plain = encode_subscription(("orders",))
    partitions = encode_assignment({"orders": owned}, version=1)[2:-4]
    return (("range", b"\x00\x01" + plain[2:] + partitions),)


def test_those_who_wait_in_the_classic_group_are_sent_back() -> None:
    world = World()
    classic_group_of_one(world)
    waiting = world.join()
    world.beat("new", 0)
    assert world.joined(waiting).code is KafkaCode.REBALANCE_IN_PROGRESS


def test_when_the_last_new_member_goes_the_group_is_classic_again() -> None:
    world = World()
    old = classic_group_of_one(world)
    world.beat("new", 0)
    world.beat("new", -1)
    group = world.classic()
    assert group.state is ClassicState.PREPARING_REBALANCE
    assert list(group.members) == [old]
    again = world.joined(world.join(old))
    assert (again.code, again.leader_id) == (KafkaCode.NONE, old)


def test_a_silent_new_member_leaves_a_classic_group_behind_too() -> None:
    world = World()
    old = classic_group_of_one(world)
    world.beat("new", 0)
    for _ in range(10):
        world.pass_time(5_000)
        if GROUP in world.state.groups and world.state.groups[GROUP].members:
            world.join(old)
    assert list(world.classic().members) == [old]


def test_an_empty_group_of_either_kind_becomes_the_other() -> None:
    world = World()
    world.beat("new", 0)
    world.beat("new", -1)
    world.commit(7)
    old = classic_group_of_one(world)
    assert world.classic().state is ClassicState.STABLE
    world.leave(old)
    assert world.beat("new", 0).assignment == {ORDERS: (0, 1, 2, 3)}
    assert world.committed() == 7


def test_a_group_that_is_not_of_consumers_stays_classic() -> None:
    world = World()
    world.join(protocol_type="connect", protocols=(("v0", b""),))
    assert refused(lambda: world.beat("new", 0)) is KafkaCode.GROUP_ID_NOT_FOUND


def test_the_policy_may_forbid_it() -> None:
    world = World()
    world.settings = replace(world.settings, may_upgrade=False)
    classic_group_of_one(world)
    assert refused(lambda: world.beat("new", 0)) is KafkaCode.GROUP_ID_NOT_FOUND


def test_a_new_classic_member_of_a_consumer_group_needs_an_id_first() -> None:
    world = World()
    world.beat("new", 0)
    told = world.joined(world.join(must_know_its_id=True))
    assert told.code is KafkaCode.MEMBER_ID_REQUIRED
    joined = world.joined(world.join(told.member_id))
    assert (joined.code, joined.leader_id, joined.generation) == (KafkaCode.NONE, "", 2)


def test_a_classic_member_that_is_silent_or_leaves_is_removed() -> None:
    world = World()
    world.beat("new", 0)
    first = world.joined(world.join()).member_id
    assert world.leave(first) == [KafkaCode.NONE]
    world.join()
    for _ in range(3):
        world.pass_time(5_000)
        world.beat("new", world.consumers().members["new"].current.epoch)
    assert list(world.consumers().members) == ["new"]


def test_other_protocols_are_not_let_into_a_consumer_group() -> None:
    world = World()
    world.beat("new", 0)
    code = refused(lambda: world.join(protocol_type="connect"))
    assert code is KafkaCode.INCONSISTENT_GROUP_PROTOCOL
