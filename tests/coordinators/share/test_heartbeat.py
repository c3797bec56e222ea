"""Transcripts of share groups: members join, get partitions, leave; administrators change them.

Covers coordinators/share/heartbeat.py, coordinators/share/group.py, coordinators/share/admin.py.
"""

import random
from collections.abc import Callable
from typing import Any

import pytest

from millstream.coordinators.codecs.changes import SharedTopic
from millstream.coordinators.decision import Decision, Env
from millstream.coordinators.groups import admin as groups_admin
from millstream.coordinators.groups.state import ShardState
from millstream.coordinators.share import admin
from millstream.coordinators.share import heartbeat as protocol
from millstream.coordinators.share.group import ShareGroup
from millstream.errors import KafkaCode, KafkaError
from tests.coordinators.steps import steps
from tests.coordinators.world import GROUP, World, image_of, refused, topic_id

ORDERS = topic_id(0)
PAYMENTS = topic_id(1)
ALL = {ORDERS: (0, 1, 2, 3)}


def decide(world: World, call: Callable[[ShareGroup, Env], Decision[Any]]) -> Any:
    def decision(state: ShardState, env: Env) -> Decision[Any]:
        group = state.groups[GROUP]
        assert isinstance(group, ShareGroup)
        return call(group, env)

    return world.replies[world.step(decision)]


def initialize(world: World, topics: dict[Any, SharedTopic]) -> None:
    decide(world, lambda group, env: protocol.initialized(group, topics, env))


def joined(world: World, member_id: str = "m1") -> int:
    """A member of a group whose partitions exist; its epoch."""
    reply = world.share_beat(member_id, 0)
    initialize(world, reply.to_initialize)
    return world.share_beat(member_id, reply.epoch, topics=("orders",)).epoch


def test_partitions_are_assigned_once_the_share_coordinator_has_them() -> None:
    world = World()
    first = world.share_beat("m1", 0)
    assert (first.epoch, first.assignment) == (1, {})
    assert first.to_initialize == {ORDERS: SharedTopic("orders", (0, 1, 2, 3))}
    # It is asked once.
    assert world.share_beat("m1", 1).to_initialize == {}
    initialize(world, first.to_initialize)
    second = world.share_beat("m1", 1)
    assert (second.epoch, second.assignment) == (2, ALL)
    # What has not changed is not repeated, unless the member asks.
    assert world.share_beat("m1", 2).assignment is None
    assert world.share_beat("m1", 2, topics=("orders",)).assignment == ALL


def test_if_the_share_coordinator_could_not_it_is_asked_again() -> None:
    world = World()
    first = world.share_beat("m1", 0)
    decide(world, lambda group, env: protocol.not_initialized(group, first.to_initialize))
    assert world.share_beat("m1", 1).to_initialize == first.to_initialize
    assert world.share_beat("m1", 1).to_initialize == {}
    world.pass_time(30_000)
    assert world.share_beat("m1", 1).to_initialize == first.to_initialize
    world.restart()
    assert world.share_beat("m1", 1).to_initialize == first.to_initialize


def test_members_share_partitions() -> None:
    world = World()
    joined(world)
    second = world.share_beat("m2", 0)
    assert second.to_initialize == {}
    assert second.assignment is not None
    first = world.share_beat("m1", 2).assignment
    assert first is not None
    assert sorted(first[ORDERS] + second.assignment[ORDERS]) == [0, 1, 2, 3]


def test_a_topic_that_grows_is_assigned_later() -> None:
    world = World()
    epoch = joined(world)
    world.set_topics(orders=6)
    reply = world.share_beat("m1", epoch)
    assert reply.to_initialize == {ORDERS: SharedTopic("orders", (4, 5))}
    initialize(world, reply.to_initialize)
    assert world.share_beat("m1", reply.epoch).assignment == {ORDERS: (0, 1, 2, 3, 4, 5)}


def test_a_member_that_no_longer_reads_a_topic_loses_it() -> None:
    world = World()
    world.set_topics(orders=4, payments=1)
    epoch = joined(world)
    reply = world.share_beat("m1", epoch, topics=("payments",))
    assert reply.assignment == {}
    initialize(world, reply.to_initialize)
    assert world.share_beat("m1", reply.epoch).assignment == {PAYMENTS: (0,)}


def test_epochs_that_are_not_the_members_are_fenced() -> None:
    world = World()
    epoch = joined(world)
    # The response may have been lost.
    assert world.share_beat("m1", epoch - 1).epoch == epoch
    assert refused(lambda: world.share_beat("m1", epoch + 1)) is KafkaCode.FENCED_MEMBER_EPOCH
    assert refused(lambda: world.share_beat("m2", 3)) is KafkaCode.UNKNOWN_MEMBER_ID
    # Joining again is always possible.
    assert world.share_beat("m1", 0).assignment == ALL


@pytest.mark.parametrize(
    "changes",
    [
        {"member_id": ""},
        {"group_id": ""},
        {"rack_id": ""},
        {"topics": ()},
        {"topics": ("t" * 600_000,)},
        {"topics": tuple(f"t{number}" for number in range(5_001))},
        {"epoch": -2},
    ],
)
def test_incomplete_and_too_large_requests_are_refused(changes: dict[str, Any]) -> None:
    assert refused(lambda: World().share_beat("m1", 0, **changes)) is KafkaCode.INVALID_REQUEST


def test_a_member_leaves_or_is_silent_for_too_long() -> None:
    world = World()
    joined(world)
    world.share_beat("m2", 0)
    assert world.share_beat("m2", -1).epoch == -1
    assert set(world.sharers().members) == {"m1"}
    assert refused(lambda: world.share_beat("m2", -1)) is KafkaCode.UNKNOWN_MEMBER_ID
    world.pass_time(45_001)
    assert world.sharers().state_name == "Empty"


def test_the_size_of_a_group_is_limited() -> None:
    world = World()
    for number in range(world.settings.share_members_max):
        world.share_beat(f"m{number}", 0)
    assert refused(lambda: world.share_beat("one more", 0)) is KafkaCode.GROUP_MAX_SIZE_REACHED


def test_the_names_of_all_members_together_are_limited() -> None:
    world = World(checks_replay=False)
    names = tuple(f"t{number}" for number in range(5_000))
    for number in range(10):
        world.share_beat(f"m{number}", 0, topics=names)
    code = KafkaCode.GROUP_MAX_SIZE_REACHED
    assert refused(lambda: world.share_beat("one more", 0)) is code
    # Members that are there may read something else, but not more.
    epoch = world.sharers().members["m1"].current.epoch
    epoch = world.share_beat("m1", epoch, topics=("u", *names[1:])).epoch
    epoch = world.share_beat("m1", epoch, topics=("orders",)).epoch
    world.share_beat("one more", 0, topics=names[1:])
    assert refused(lambda: world.share_beat("m1", epoch, topics=names[:2])) is code


def test_members_that_read_the_same_may_name_more_together() -> None:
    world = World(checks_replay=False)
    names = ("orders", *(f"t{number}" for number in range(599)))
    epochs = [world.share_beat(f"m{number}", 0, topics=names).epoch for number in range(110)]
    # One that reads something else makes all of them count, even if it reads less.
    code = KafkaCode.GROUP_MAX_SIZE_REACHED
    assert refused(lambda: world.share_beat("other", 0)) is code
    assert refused(lambda: world.share_beat("m0", epochs[0], topics=names[1:])) is code
    assert refused(lambda: world.share_beat("m0", epochs[0], topics=("u", *names[1:]))) is code
    # Heartbeats that change nothing.
    world.share_beat("m0", epochs[0])
    world.share_beat("m0", epochs[0], topics=names)
    for number in range(83, 110):
        world.share_beat(f"m{number}", -1)
    epoch = world.share_beat("other", 0).epoch
    assert refused(lambda: world.share_beat("m83", 0, topics=names)) is code
    # Once the only one that reads something else does as all others, there may be more of them.
    world.share_beat("other", epoch, topics=names)
    for number in range(83, 110):
        world.share_beat(f"m{number}", 0, topics=names)
    assert world.sharers().subscriptions.different == 1


@pytest.mark.parametrize("seed", range(10))
def test_what_all_members_read_is_as_counted_anew(seed: int) -> None:
    chance = random.Random(seed)
    world = World(image=image_of(a=2, b=1, c=3), checks_replay=False)
    world.share_beat("m0", 0, topics=("a",))
    for _ in range(80):
        member_id, action = f"m{chance.randrange(5)}", chance.random()
        members = world.sharers().members
        topics = tuple(chance.sample("abcde", chance.randint(1, 3)))
        if action < 0.1:
            world.restart()
        elif action < 0.2:
            world.set_topics(**{name: chance.randint(1, 3) for name in chance.sample("abcde", 3)})
        elif action < 0.35 and member_id in members:
            world.share_beat(member_id, -1)
        else:
            epoch = members[member_id].current.epoch if member_id in members else 0
            changes = {"topics": topics} if epoch == 0 or action < 0.6 else {}
            begin = world.share_beat(member_id, epoch, **changes).to_initialize
            if begin and chance.random() < 0.8:
                initialize(world, begin)
        check_what_is_read(world)
    world.check_replay()


def check_what_is_read(world: World) -> None:
    group = world.sharers()
    subscriptions = [member.stored.topics for member in group.members.values()]
    assert group.subscriptions.names() == {name for names in subscriptions for name in names}
    assert group.subscriptions.all_names == sum(map(len, subscriptions))
    for member_id, member in group.members.items():
        # Nothing that is read is left out by what was noted before.
        begin = world.share_beat(member_id, member.current.epoch).to_initialize
        unbegun = {
            topic.topic_id
            for names in subscriptions
            for name in names
            if (topic := world.image.topics.get(name)) is not None
            and not covers_all(group.topics.initialized.get(topic.topic_id), len(topic.partitions))
        }
        assert begin.keys() <= unbegun <= begin.keys() | group.initializing_until_ms.keys()


def covers_all(known: SharedTopic | None, count: int) -> bool:
    return known is not None and {*range(count)} <= {*known.partitions}


def test_a_heartbeat_does_not_read_the_names_of_all_members() -> None:
    def turns(count: int) -> int:
        world = World(checks_replay=False)
        names = tuple(f"t{number}" for number in range(count))
        for member_id in ("m1", "m2"):
            epoch = world.share_beat(member_id, 0, topics=("orders", *names)).epoch
        initialize(world, world.sharers().topics.initializing)
        for _ in range(2):
            epoch = world.share_beat("m2", epoch).epoch
        return steps(lambda: world.share_beat("m2", epoch))

    assert turns(1_000) == turns(10)


def test_a_group_may_have_its_own_timeouts() -> None:
    world = World()
    world.image.group_overrides[GROUP] = {
        "share.session.timeout.ms": "50000",
        "share.heartbeat.interval.ms": "7000",
    }
    epoch = joined(world)
    world.pass_time(46_000)
    assert world.share_beat("m1", epoch).interval_ms == 7_000


def test_a_name_is_for_one_kind_of_group() -> None:
    world = World()
    joined(world)
    assert refused(lambda: world.beat("c1", 0)) is KafkaCode.GROUP_ID_NOT_FOUND
    assert refused(world.join) is KafkaCode.INCONSISTENT_GROUP_PROTOCOL
    assert refused(lambda: world.commit(5)) is KafkaCode.GROUP_ID_NOT_FOUND
    other = World()
    other.beat("c1", 0)
    assert refused(lambda: other.share_beat("m1", 0)) is KafkaCode.GROUP_ID_NOT_FOUND


def test_groups_are_listed_as_share_groups() -> None:
    world = World()
    joined(world)
    [row] = groups_admin.list_groups(world.state, states=["stable"], types=["Share"])
    assert (row.group_id, row.protocol_type, row.type) == (GROUP, "share", "share")


# -- administrators -----------------------------------------------------------------------


def empty_group(world: World) -> None:
    joined(world)
    world.share_beat("m1", -1)


def test_only_a_group_without_members_is_changed() -> None:
    world = World()
    joined(world)
    group, env = world.sharers(), world.env(object())  # type: ignore[arg-type]
    for call in (
        lambda: admin.begin_delete(group, env),
        lambda: admin.begin_alter(group, {"orders": {0: 5}}, env),
        lambda: admin.begin_forget(group, ["orders"], env),
    ):
        with pytest.raises(KafkaError) as error:
            call()
        assert error.value.code is KafkaCode.NON_EMPTY_GROUP


def test_deleting_a_group_begins_with_its_share_partitions() -> None:
    world = World()
    empty_group(world)
    work = decide(world, admin.begin_delete)
    assert work.topics == {ORDERS: SharedTopic("orders", (0, 1, 2, 3))}
    # Interrupted, it can be repeated.
    world.restart()
    assert decide(world, admin.begin_delete).topics == work.topics
    world.step(lambda state, env: groups_admin.delete_group(state, GROUP))
    assert world.state.groups == {}


def test_a_group_starts_elsewhere_in_a_higher_epoch_of_the_state() -> None:
    world = World()
    empty_group(world)
    epoch = world.sharers().epoch
    wanted = {"orders": {1: 7, 9: 0}, "nothing": {0: 0}}
    work = decide(world, lambda group, env: admin.begin_alter(group, wanted, env))
    assert work.state_epoch == epoch + 1 == world.sharers().epoch
    assert work.starts == {(ORDERS, 1): 7}
    assert work.unknown == {("orders", 9), ("nothing", 0)}
    initialize(world, work.topics)
    assert world.sharers().topics.initializing == {}


def test_a_group_forgets_a_topic() -> None:
    world = World()
    empty_group(world)
    names = ["orders", "nothing"]
    work = decide(world, lambda group, env: admin.begin_forget(group, names, env))
    assert (set(work.topics), set(work.unknown_topics)) == ({ORDERS}, {"nothing"})
    assert world.sharers().topics.deleting == {ORDERS: "orders"}
    decide(world, lambda group, env: admin.forgotten(group, [ORDERS]))
    assert world.sharers().topics.deleting == {}
    again = decide(world, lambda group, env: admin.begin_forget(group, ["orders"], env))
    assert set(again.unknown_topics) == {"orders"}


def test_a_deleted_topic_is_forgotten() -> None:
    world = World()
    empty_group(world)
    [records] = groups_admin.forget_shared(world.state, ORDERS).values()
    world.step(lambda state, env: Decision(records=records))
    assert world.sharers().topics.initialized == {}
    assert groups_admin.forget_shared(world.state, ORDERS) == {}
