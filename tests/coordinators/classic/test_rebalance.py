"""Transcripts of classic groups: who joins, who waits, what they are told."""

from dataclasses import replace

from millstream.coordinators.classic.group import ClassicState
from millstream.coordinators.classic.rebalance import NEW_MEMBER_TIMEOUT_MS
from millstream.errors import KafkaCode
from tests.coordinators.world import REBALANCE_MS, SESSION_MS, World, refused


def test_a_single_member_leads_the_first_generation_at_once() -> None:
    world = World()
    reply = world.joined(world.join())
    assert reply.code is KafkaCode.NONE
    assert reply.generation == 1
    assert reply.leader_id == reply.member_id
    assert [member.member_id for member in reply.members] == [reply.member_id]


def test_a_second_member_waits_until_the_first_has_joined_again() -> None:
    world = World()
    first = world.joined(world.join()).member_id
    waiting = world.join()
    assert waiting not in world.replies
    assert world.heartbeat(first, 1) is KafkaCode.REBALANCE_IN_PROGRESS
    again = world.join(first)
    assert world.joined(again).generation == world.joined(waiting).generation == 2
    assert len(world.joined(again).members) == 2
    assert world.joined(waiting).members == ()


def test_the_leaders_assignment_reaches_everyone_untouched() -> None:
    world = World()
    leader = world.joined(world.join()).member_id
    waiting = world.join()
    world.join(leader)
    follower = world.joined(waiting).member_id
    part = world.sync_with(follower, 2, {})
    assert part not in world.replies
    whole = world.sync_with(leader, 2, {leader: b"\x00one", follower: b"two\xff"})
    assert world.synced(whole).assignment == b"\x00one"
    assert world.synced(part).assignment == b"two\xff"
    assert world.classic().state is ClassicState.STABLE


def test_a_sync_of_a_stable_group_gives_the_assignment_again() -> None:
    world = World()
    leader, follower = world.stable_group(2)
    assert world.synced(world.sync_with(follower, 2, {})).assignment == follower.encode()
    assert world.synced(world.sync_with(leader, 2, {})).assignment == leader.encode()


def test_a_join_while_others_sync_sends_them_back() -> None:
    world = World()
    leader = world.joined(world.join()).member_id
    second = world.join()
    world.join(leader)
    syncing = world.sync_with(world.joined(second).member_id, 2, {})
    world.join()
    assert world.synced(syncing).code is KafkaCode.REBALANCE_IN_PROGRESS


def test_a_member_that_does_not_rejoin_in_time_is_left_out() -> None:
    world = World()
    leader, follower = world.stable_group(2)
    rejoining = world.join(leader)
    while rejoining not in world.replies:
        world.pass_time(SESSION_MS // 2)
        if world.now_ms < 1_000_000 + REBALANCE_MS:
            # It is alive, it only does not come.
            assert world.heartbeat(follower, 2) is KafkaCode.REBALANCE_IN_PROGRESS
    assert [m.member_id for m in world.joined(rejoining).members] == [leader]
    assert refused(lambda: world.heartbeat(follower, 2)) is KafkaCode.UNKNOWN_MEMBER_ID


def test_a_silent_member_is_removed_and_the_others_rebalance() -> None:
    world = World()
    leader, follower = world.stable_group(2)
    world.pass_time(SESSION_MS - 1)
    assert world.heartbeat(leader, 2) is KafkaCode.NONE
    world.pass_time(2)
    assert world.heartbeat(leader, 2) is KafkaCode.REBALANCE_IN_PROGRESS
    assert follower not in world.classic().members


def test_a_member_whose_join_waits_is_not_taken_for_silent() -> None:
    world = World()
    leader, follower = world.stable_group(2)
    waiting = world.join(follower, protocols=(("range", b"changed"),))
    for _ in range(3):
        world.pass_time(SESSION_MS - 1)
        world.heartbeat(leader, 2)
    assert waiting not in world.replies
    world.join(leader)
    assert world.joined(waiting).code is KafkaCode.NONE


def test_a_new_member_whose_join_nobody_completes_is_forgotten_after_five_minutes() -> None:
    world = World()
    [leader] = world.stable_group(1)
    waiting = world.join(rebalance_timeout_ms=10 * NEW_MEMBER_TIMEOUT_MS)
    for _ in range(NEW_MEMBER_TIMEOUT_MS // (SESSION_MS - 1) + 1):
        world.pass_time(SESSION_MS - 1)
        world.heartbeat(leader, 1)
    assert world.joined(waiting).code is KafkaCode.UNKNOWN_MEMBER_ID


def test_members_that_never_sync_are_out_after_the_rebalance_timeout() -> None:
    world = World()
    leader = world.joined(world.join()).member_id
    second = world.join()
    world.join(leader)
    silent = world.joined(second).member_id
    world.sync_with(leader, 2, {leader: b"all"})
    for _ in range(REBALANCE_MS // (SESSION_MS // 2)):
        world.pass_time(SESSION_MS // 2)
        world.heartbeat(leader, 2)
        if silent in world.classic().members:
            world.heartbeat(silent, 2)
    assert list(world.classic().members) == [leader]


def test_the_last_member_leaves_an_empty_group_behind() -> None:
    world = World()
    [only] = world.stable_group(1)
    assert world.leave(only) == [KafkaCode.NONE]
    group = world.classic()
    assert (group.state, group.generation, group.leader_id) == (ClassicState.EMPTY, 2, None)


def test_a_group_of_none_but_absent_static_members_waits_for_them() -> None:
    world = World()
    static = world.joined(world.join(instance_id="i1")).member_id
    world.sync_with(static, 1, {static: b"all"}, "i1")
    waiting = world.join()
    # The static member does not rejoin, but its session holds its place.
    for _ in range(REBALANCE_MS // (SESSION_MS - 1) + 1):
        world.pass_time(SESSION_MS - 1)
        if waiting in world.replies:
            break
        world.heartbeat(static, 1, "i1")
    reply = world.joined(waiting)
    assert reply.leader_id == reply.member_id
    assert {member.instance_id for member in reply.members} == {"i1", None}


def test_with_an_initial_delay_the_first_generation_gathers_members() -> None:
    world = World()
    world.settings = replace(world.settings, initial_rebalance_delay_ms=3_000)
    first = world.join()
    world.pass_time(2_999)
    second = world.join()
    world.pass_time(2_999)
    assert first not in world.replies
    world.pass_time(3_001)
    assert world.joined(first).generation == world.joined(second).generation == 1


def test_a_first_member_that_cannot_assign_yet_is_given_time() -> None:
    world = World()
    world.settings = replace(world.settings, initial_rebalance_delay_ms=20)
    ticket = world.join(first_wait_ms=150)
    world.pass_time(149)
    assert ticket not in world.replies
    world.pass_time(1)
    assert world.joined(ticket).generation == 1


def test_without_an_initial_delay_nobody_waits() -> None:
    world = World()
    assert world.joined(world.join(first_wait_ms=150)).generation == 1


def test_the_initial_delay_is_not_extended_beyond_its_limit() -> None:
    world = World()
    world.settings = replace(
        world.settings, initial_rebalance_delay_ms=20, initial_rebalance_wait_max_ms=50
    )
    first = world.join()
    for _ in range(5):
        world.pass_time(10)
        world.join()
    assert world.joined(first).code is KafkaCode.NONE


def test_where_a_second_member_came_in_time_further_ones_are_waited_for_longer() -> None:
    world = World()
    world.settings = replace(
        world.settings, initial_rebalance_delay_ms=20, initial_rebalance_extension_ms=100
    )
    first = world.join()
    world.pass_time(10)
    world.join()
    world.pass_time(90)
    late = world.join()
    world.pass_time(119)
    assert late not in world.replies
    world.pass_time(2)
    assert world.joined(first).generation == world.joined(late).generation == 1


def test_a_member_alone_does_not_wait_for_the_extension() -> None:
    world = World()
    world.settings = replace(
        world.settings, initial_rebalance_delay_ms=20, initial_rebalance_extension_ms=100
    )
    alone = world.join()
    world.pass_time(20)
    assert world.joined(alone).generation == 1


def test_after_a_restart_a_stable_group_goes_on_in_its_generation() -> None:
    world = World()
    leader, follower = world.stable_group(2)
    world.restart()
    assert world.heartbeat(leader, 2) is KafkaCode.NONE
    assert world.synced(world.sync_with(follower, 2, {})).assignment == follower.encode()
    world.pass_time(SESSION_MS + 1)
    assert world.classic().members == {}
