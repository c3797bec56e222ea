"""What the classic requests refuse, and how static members come back."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as some

from millstream.coordinators.classic.group import ClassicState, Protocols
from millstream.coordinators.classic.protocol import Leaving, SyncRequest
from millstream.coordinators.codecs.embedded import encode_subscription
from millstream.coordinators.decision import Ticket
from millstream.coordinators.groups import requests
from millstream.errors import KafkaCode, KafkaError
from tests.coordinators.steps import steps
from tests.coordinators.world import GROUP, SESSION_MS, World, refused

SUBSCRIPTION = encode_subscription(("orders",))


def test_a_new_member_is_first_given_an_id_to_come_back_with() -> None:
    world = World()
    told = world.joined(world.join(must_know_its_id=True))
    assert told.code is KafkaCode.MEMBER_ID_REQUIRED
    assert told.member_id.startswith("c-")
    assert world.joined(world.join(told.member_id)).generation == 1


def test_a_given_id_that_nobody_comes_back_with_is_forgotten() -> None:
    world = World()
    told = world.joined(world.join(must_know_its_id=True)).member_id
    world.pass_time(SESSION_MS + 1)
    assert refused(lambda: world.join(told)) is KafkaCode.UNKNOWN_MEMBER_ID


def test_a_join_waits_for_members_that_have_been_given_ids() -> None:
    world = World()
    told = world.joined(world.join(must_know_its_id=True)).member_id
    first = world.join()
    assert first not in world.replies
    world.join(told)
    assert len(world.joined(first).members) == 2


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
def test_a_session_timeout_out_of_bounds_is_refused(session_ms: int) -> None:
    world = World()
    code = refused(lambda: world.join(session_timeout_ms=session_ms))
    assert code is KafkaCode.INVALID_SESSION_TIMEOUT
    assert world.state.groups == {}


def test_metadata_that_could_never_be_stored_is_refused() -> None:
    world = World()
    protocols = (("range", bytes(600_000)), ("roundrobin", bytes(600_000)))
    assert refused(lambda: world.join(protocols=protocols)) is KafkaCode.INVALID_REQUEST
    assert world.state.groups == {}


def test_a_group_without_a_name_is_refused() -> None:
    assert refused(lambda: World().join(group_id="")) is KafkaCode.INVALID_GROUP_ID


def test_an_unknown_member_of_an_unknown_group_is_refused() -> None:
    world = World()
    assert refused(lambda: world.join("someone")) is KafkaCode.UNKNOWN_MEMBER_ID
    assert refused(lambda: world.heartbeat("someone", 1)) is KafkaCode.UNKNOWN_MEMBER_ID
    assert refused(lambda: world.leave("someone")) is KafkaCode.UNKNOWN_MEMBER_ID
    assert world.state.groups == {}


def test_a_member_that_shares_no_protocol_is_refused() -> None:
    world = World()
    world.stable_group(1)
    other = (("roundrobin", SUBSCRIPTION),)
    inconsistent = KafkaCode.INCONSISTENT_GROUP_PROTOCOL
    assert refused(lambda: world.join(protocols=other)) is inconsistent
    assert refused(lambda: world.join(protocol_type="connect")) is inconsistent
    assert refused(lambda: world.join(protocols=())) is inconsistent
    assert world.classic().state is ClassicState.STABLE


def test_the_protocol_most_members_prefer_is_chosen_among_the_shared_ones() -> None:
    world = World()
    both = (("range", b"r"), ("sticky", b"s"))
    first = world.joined(world.join(protocols=both)).member_id
    waiting = world.join(protocols=(("sticky", b"s"), ("range", b"r")))
    third = world.join(protocols=(("sticky", b"s"),))
    world.join(first, protocols=both)
    assert world.joined(waiting).protocol_name == world.joined(third).protocol_name == "sticky"


def protocols_named(names: Iterable[str]) -> Protocols:
    return tuple((name, SUBSCRIPTION) for name in names)


@given(
    some.lists(
        some.tuples(
            some.sampled_from(["new", "new", "again", "leave", "restart", "settle"]),
            some.integers(0, 3),
            some.lists(some.sampled_from("abc"), min_size=1, max_size=3),
        ),
        max_size=12,
    )
)
def test_shared_protocols_are_those_that_every_member_supports(
    changes: list[tuple[str, int, list[str]]],
) -> None:
    world = World()
    world.join(protocols=protocols_named("abc"))
    for change, number, names in changes:
        group = world.classic()
        member_id = next(islice(group.members, number, None), "")
        try:
            if change == "restart":
                world.restart()
            elif change == "leave":
                world.leave(member_id)
            elif change == "settle":
                # Those that do not join again are left out.
                world.pass_time(SESSION_MS)
                world.sync_with(group.leader_id or "", group.generation, {})
            else:
                joining = member_id if change == "again" else ""
                world.join(joining, protocols=protocols_named(names))
        except KafkaError:
            pass
        # A group of which nothing was stored is gone after a restart.
        if world.state.groups:
            group = world.classic()
            shared = [each.protocol_names for each in group.members.values()]
            for name in "abc":
                is_shared = bool(shared) and all(name in names for names in shared)
                if group.state is not ClassicState.EMPTY:
                    assert group.supports("consumer", protocols_named([name])) == is_shared
        else:
            world.join(protocols=protocols_named("abc"))


def test_a_join_costs_no_more_if_members_support_many_protocols() -> None:
    def work(count: int) -> int:
        world = World()
        names = [f"p{number}" for number in range(count)]
        for _ in range(10):
            world.join(protocols=protocols_named(names))
        return steps(lambda: refused(lambda: world.join(protocols=protocols_named(["other"]))))

    assert work(80) < 2 * work(20)


def test_a_member_with_too_many_protocols_is_refused() -> None:
    world = World()
    most = protocols_named(f"p{number}" for number in range(100))
    assert world.joined(world.join(protocols=most)).code is KafkaCode.NONE
    more = (*most, ("p100", SUBSCRIPTION))
    code = refused(lambda: world.join(protocols=more))
    assert code is KafkaCode.INCONSISTENT_GROUP_PROTOCOL


def test_any_protocol_type_is_served() -> None:
    world = World()
    protocols = (("v0", b"\x00\x01anything"),)
    reply = world.joined(world.join(protocol_type="sr", protocols=protocols))
    assert reply.protocol_type == "sr"
    assert reply.members[0].metadata == b"\x00\x01anything"


def test_a_full_group_refuses_new_members_and_keeps_the_old() -> None:
    world = World()
    world.settings = replace(world.settings, classic_members_max=1)
    [only] = world.stable_group(1)
    assert refused(world.join) is KafkaCode.GROUP_MAX_SIZE_REACHED
    assert world.heartbeat(only, 1) is KafkaCode.NONE


def test_another_generation_is_refused() -> None:
    world = World()
    [only] = world.stable_group(1)
    assert refused(lambda: world.heartbeat(only, 7)) is KafkaCode.ILLEGAL_GENERATION
    assert refused(lambda: world.sync_with(only, 0, {})) is KafkaCode.ILLEGAL_GENERATION


def test_a_follower_that_joins_unchanged_is_told_the_generation_again() -> None:
    world = World()
    _, follower = world.stable_group(2)
    assert world.joined(world.join(follower)).generation == 2
    assert world.classic().state is ClassicState.STABLE


def test_a_leader_that_joins_again_starts_a_rebalance() -> None:
    world = World()
    leader, follower = world.stable_group(2)
    world.join(leader)
    assert world.heartbeat(follower, 2) is KafkaCode.REBALANCE_IN_PROGRESS


def test_an_assignment_too_large_for_the_log_changes_nothing() -> None:
    world = World()
    only = world.joined(world.join()).member_id
    huge = bytes(world.settings.batch_bytes_max)
    ticket = world.sync_with(only, 1, {only: huge})
    assert world.synced(ticket).code is KafkaCode.UNKNOWN_SERVER_ERROR
    assert world.log == []
    assert world.classic().state is ClassicState.PREPARING_REBALANCE


def test_a_static_member_is_back_in_its_place_without_a_rebalance() -> None:
    world = World()
    old = world.joined(world.join(instance_id="i1")).member_id
    world.sync_with(old, 1, {old: b"mine"}, "i1")
    back = world.joined(world.join(instance_id="i1"))
    assert back.member_id != old
    assert (back.generation, back.leader_id, back.members) == (1, old, ())
    assert world.synced(world.sync_with(back.member_id, 1, {}, "i1")).assignment == b"mine"
    assert refused(lambda: world.heartbeat(old, 1, "i1")) is KafkaCode.FENCED_INSTANCE_ID


def test_a_leader_that_is_back_may_be_told_to_skip_the_assignment() -> None:
    world = World()
    old = world.joined(world.join(instance_id="i1")).member_id
    world.sync_with(old, 1, {old: b"mine"}, "i1")
    back = world.joined(world.join(instance_id="i1", can_skip_assignment=True))
    assert back.skip_assignment
    assert back.leader_id == back.member_id
    assert len(back.members) == 1


def test_a_static_member_with_another_protocol_starts_a_rebalance() -> None:
    world = World()
    old = world.joined(world.join(instance_id="i1")).member_id
    world.sync_with(old, 1, {old: b"mine"}, "i1")
    other = (("sticky", SUBSCRIPTION), ("range", SUBSCRIPTION))
    assert world.joined(world.join(instance_id="i1", protocols=other)).generation == 2


def test_the_old_instance_is_fenced_while_it_waits() -> None:
    world = World()
    leader = world.joined(world.join()).member_id
    waiting = world.join(instance_id="i1")
    world.join(instance_id="i1")
    assert world.joined(waiting).code is KafkaCode.FENCED_INSTANCE_ID
    assert world.heartbeat(leader, 1) is KafkaCode.REBALANCE_IN_PROGRESS


def test_an_administrator_removes_an_instance_by_its_name() -> None:
    world = World()
    old = world.joined(world.join(instance_id="i1")).member_id
    world.sync_with(old, 1, {old: b"mine"}, "i1")
    assert world.leave("", "i2") == [KafkaCode.UNKNOWN_MEMBER_ID]
    assert world.leave("wrong", "i1") == [KafkaCode.FENCED_INSTANCE_ID]
    assert world.leave("", "i1") == [KafkaCode.NONE]
    assert world.classic(GROUP).members == {}


def test_members_need_a_group_with_a_name() -> None:
    world = World()
    # Offsets do not.
    assert world.commit(5, group_id="") is KafkaCode.NONE
    env = world.env(Ticket())
    state, sync = world.state, SyncRequest("m", None, 1, None, None, {})
    asked: list[Callable[[], object]] = [
        lambda: requests.sync(state, "", sync, env),
        lambda: requests.heartbeat(
            state, "", member_id="m", instance_id=None, generation=1, env=env
        ),
        lambda: requests.leave(state, "", [Leaving("m", None)], env),
        lambda: requests.describe_consumer(state, ""),
        lambda: world.join(group_id=""),
    ]
    assert {refused(ask) for ask in asked} == {KafkaCode.INVALID_GROUP_ID}
