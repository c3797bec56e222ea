"""Random lives of consumer groups: no partition ever has two owners. And steps that are lost,
or would cost too much.
"""

import random
from typing import Any

import pytest

from millstream.coordinators.codecs.changes import Assignment
from millstream.coordinators.consumer.group import topics_of
from millstream.coordinators.consumer.heartbeat import HeartbeatRequest
from millstream.coordinators.consumer.subscriptions import topics_hash
from millstream.coordinators.decision import Ticket
from millstream.coordinators.groups import requests
from millstream.errors import KafkaCode, KafkaError
from tests.coordinators.steps import steps
from tests.coordinators.world import ALL_TOPICS, GROUP, REBALANCE_MS, World, image_of, refused


class Client:
    """A member as its application sees it: owns what it was told, gives up when asked.

    As real clients do, it reports what it owns only when that has changed since it last
    said so. Told what it has already, it has nothing to say.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.epoch = 0
        self.owned: Assignment = {}
        self.told: Assignment = {}
        self.said: Assignment = {}
        # After the loss of its connection, a client says everything again.
        self.is_reconnecting = False

    def beat(self, world: World, topics: tuple[str, ...], *, is_late: bool = False) -> None:
        """`is_late`: the client does not wait for the answer, and sends the same request again."""
        changes: dict[str, object] = {}
        if self.epoch == 0:
            changes["topics"] = topics
        elif self.is_reconnecting:
            changes = {
                "topics": topics,
                "owned": self.owned,
                "rebalance_timeout_ms": REBALANCE_MS,
            }
        elif self.owned != self.said:
            changes["owned"] = self.owned
        self.said, self.is_reconnecting = self.owned, False
        try:
            if is_late:
                world.beat(self.name, self.epoch, **changes)
            reply = world.beat(self.name, self.epoch, **changes)
        except KafkaError:
            self.epoch, self.owned, self.told, self.said = 0, {}, {}, {}
            return
        self.epoch = reply.epoch
        if reply.assignment is not None:
            self.told = reply.assignment

    def take_in(self) -> None:
        self.owned = self.told


def owners(clients: list[Client]) -> dict[tuple[object, int], str]:
    found: dict[tuple[object, int], str] = {}
    for client in clients:
        # What it has and what it is about to have: neither may be anyone else's.
        both = {
            (topic, partition)
            for assignment in (client.owned, client.told)
            for topic, partitions in assignment.items()
            for partition in partitions
        }
        for place in both:
            assert place not in found, f"{place} is of {found[place]} and of {client.name}"
            found[place] = client.name
    return found


@pytest.mark.parametrize("seed", range(12))
def test_a_partition_never_has_two_owners(seed: int) -> None:
    chance = random.Random(seed)
    world = World(image=image_of(a=5, b=3, c=1), checks_replay=False)
    clients: list[Client] = []
    number = 0
    for _ in range(250):
        what = chance.random()
        if what < 0.06 and len(clients) < 8:
            number += 1
            clients.append(Client(f"m{number}"))
        elif what < 0.09 and clients:
            gone = clients.pop(chance.randrange(len(clients)))
            # It may have been fenced since.
            if gone.name in world.consumers().members:
                world.beat(gone.name, -1)
        elif what < 0.10:
            world.restart()
            for client in clients:
                client.is_reconnecting = True
        elif what < 0.11:
            world.set_topics(a=chance.randint(1, 8), b=3, c=1)
        elif clients:
            client = chance.choice(clients)
            topics = chance.choice((("a", "b"), ("a", "b", "c"), ("b",)))
            client.beat(world, topics, is_late=chance.random() < 0.3)
        if clients and chance.random() < 0.5:
            chance.choice(clients).take_in()
        owners(clients)
    world.check_replay()
    settle(world, clients)
    if clients:
        assert world.consumers().state_name == "Stable"


def settle(world: World, clients: list[Client]) -> None:
    for _ in range(12):
        for client in clients:
            client.beat(world, ("a",))
            client.take_in()
            owners(clients)


@pytest.mark.parametrize(
    "subscription", [{"topics": ("a",)}, {"topics": (), "pattern": "a.*"}], ids=["names", "pattern"]
)
def test_topics_that_have_changed_are_noticed_although_the_first_decision_was_not_written(
    subscription: dict[str, Any],
) -> None:
    world = World(image=image_of(a=1))
    epoch = world.beat("m", 0, **subscription).epoch
    assert world.beat("m", epoch).epoch == epoch
    world.set_topics(a=2, ab=1)
    request = HeartbeatRequest(GROUP, "m", epoch, "c", "/127.0.0.1")
    world.match(request, ALL_TOPICS)
    # Too few replicas are in sync: the member gets an error, and the records are lost.
    lost = requests.consumer_heartbeat(world.state, request, world.env(Ticket()))
    assert lost.records
    assert world.beat("m", epoch).epoch > epoch


@pytest.mark.parametrize("seed", range(10))
def test_what_all_members_read_is_as_counted_anew(seed: int) -> None:
    chance = random.Random(seed)
    world = World(image=image_of(a=2, b=1, ab=3), checks_replay=False)
    world.beat("m0", 0)
    for _ in range(80):
        member_id, action = f"m{chance.randrange(5)}", chance.random()
        members = world.consumers().members
        if action < 0.1:
            world.restart()
        elif action < 0.2:
            names = chance.sample(["a", "b", "ab", "abc", "c"], 3)
            world.set_topics(**{name: chance.randint(1, 3) for name in names})
        elif action < 0.3 and member_id in members:
            world.beat(member_id, -1)
        else:
            epoch = members[member_id].current.epoch if member_id in members else 0
            changes: dict[str, Any] = {}
            if epoch == 0 or action < 0.6:
                names = chance.sample(["a", "b", "ab", "x"], chance.randrange(3))
                changes["topics"] = tuple(names)
                changes["pattern"] = chance.choice(("", "a.*", ".*b", "[bc]"))
            world.beat(member_id, epoch, **changes)
        check_what_is_read(world)
    world.check_replay()


def check_what_is_read(world: World) -> None:
    group = world.consumers()
    members = group.members.values()
    read = {name for member in members for name in topics_of(group, member.stored)}
    assert group.subscriptions.names() == read
    for name in (*world.image.topics, "x", "y"):
        assert group.is_subscribed_to(name) == (name in read)
    different = [*{member.stored.topics for member in members}]
    matched = {each.topics for each in group.patterns.values()} - {*different}
    assert group.subscriptions.different_names == sum(map(len, (*different, *matched)))
    if group.epoch == group.target_epoch and group.topics_version_seen == world.topics_version:
        assert group.metadata_hash == topics_hash(read, world.image)


def test_a_join_costs_what_it_changes() -> None:
    def turns(count: int) -> int:
        world = World(checks_replay=False)
        for number in range(20):
            names = tuple(f"t{each}" for each in range(number * 50, number * 50 + count))
            world.beat(f"m{number}", 0, topics=("orders", *names))
        # Looks up the topics of the member before it.
        world.beat("one", 0, topics=("orders",))
        return steps(lambda: world.beat("one more", 0, topics=("orders",)))

    assert turns(500) == turns(5)


def test_the_different_subscriptions_of_a_group_are_limited() -> None:
    world = World(checks_replay=False)
    for number in range(20):
        names = tuple(f"t{number}-{each}" for each in range(5_000))
        world.beat(f"m{number}", 0, topics=names)
    code = KafkaCode.GROUP_MAX_SIZE_REACHED
    assert refused(lambda: world.beat("one more", 0)) is code
    # Others may read the same, and members that are there may read something else, but not more.
    world.beat("same", 0, topics=names)
    world.beat("m0", world.consumers().members["m0"].current.epoch, topics=("orders", *names[1:]))
    world.beat("m0", world.consumers().members["m0"].current.epoch, topics=("orders",))
    world.beat("one more", 0, topics=("orders", "payments"))
    assert refused(lambda: world.beat("m20", 0, topics=names[1:])) is code
    # What a pattern matches counts for others.
    world.beat("by pattern", 0, topics=(), pattern="orders")
