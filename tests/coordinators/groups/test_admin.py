"""Groups as administrators list, describe and delete them."""

from millstream.coordinators.groups import admin
from millstream.coordinators.groups.admin import DescribedGroup, ListedGroup
from millstream.errors import KafkaCode
from tests.coordinators.world import GROUP, World, refused


def listed(world: World, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> list[str]:
    return [row.group_id for row in admin.list_groups(world.state, states=states, types=types)]


def test_groups_are_listed_with_their_state_and_type() -> None:
    world = World()
    world.stable_group(1)
    [row] = admin.list_groups(world.state, states=(), types=())
    assert row == ListedGroup(GROUP, "consumer", "Stable", "classic")


def test_filters_know_no_difference_of_case() -> None:
    world = World()
    world.stable_group(1)
    assert listed(world, states=("stable", "Empty")) == [GROUP]
    assert listed(world, states=("Dead",)) == []
    assert listed(world, types=("Classic",)) == [GROUP]
    assert listed(world, types=("consumer",)) == []


def describe(world: World) -> DescribedGroup:
    ticket = world.step(lambda state, env: admin.describe(state, GROUP))
    reply = world.replies[ticket]
    assert isinstance(reply, DescribedGroup)
    return reply


def test_a_stable_group_shows_what_its_members_have() -> None:
    world = World()
    [only] = world.stable_group(1)
    group = describe(world)
    assert (group.state, group.protocol_type, group.protocol_name) == (
        "Stable",
        "consumer",
        "range",
    )
    [member] = group.members
    assert (member.member_id, member.client_host, member.assignment) == (
        only,
        "/127.0.0.1",
        only.encode(),
    )


def test_a_rebalancing_group_shows_members_without_assignments() -> None:
    world = World()
    leader, _ = world.stable_group(2)
    world.join(leader)
    group = describe(world)
    assert group.state == "PreparingRebalance"
    assert {member.assignment for member in group.members} == {b""}


def test_an_unknown_group_is_not_found() -> None:
    world = World()
    assert refused(lambda: describe(world)) is KafkaCode.GROUP_ID_NOT_FOUND
    assert refused(lambda: delete(world)) is KafkaCode.GROUP_ID_NOT_FOUND


def delete(world: World) -> None:
    world.step(lambda state, env: admin.delete_group(state, GROUP))


def test_a_group_with_members_is_not_deleted() -> None:
    world = World()
    [only] = world.stable_group(1)
    assert refused(lambda: delete(world)) is KafkaCode.NON_EMPTY_GROUP
    world.leave(only)
    world.commit(1)
    delete(world)
    assert world.state.groups == {}
    assert world.state.offsets == {}
    assert world.replayed().groups == {}


def test_an_empty_consumer_group_is_deleted_with_all_its_records() -> None:
    world = World()
    world.beat("m1", 0, topics=(), pattern="ord.*")
    assert refused(lambda: delete(world)) is KafkaCode.NON_EMPTY_GROUP
    world.beat("m1", -1)
    delete(world)
    assert world.replayed().groups == {}
