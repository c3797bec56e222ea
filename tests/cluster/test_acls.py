"""ACLs in the store, in every node's image, and across restarts."""

import asyncio

from millstream.cluster.acls import StoredAcls, added, removed
from millstream.security.acl import (
    Binding,
    BindingFilter,
    Entry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from tests.cluster.test_member_publisher import World as ClusterWorld
from tests.cluster.test_member_publisher import controller_at, run, until
from tests.cluster.test_metadata import World

TOPIC = ResourcePattern(ResourceType.TOPIC, "t")
PREFIX = ResourcePattern(ResourceType.GROUP, "g/", PatternType.PREFIXED)


def entry(principal: str = "User:a", host: str = "*") -> Entry:
    return Entry(principal, host, Operation.READ, Permission.ALLOW)


def test_listeners_hear_of_changes_only():
    acls = StoredAcls()
    heard = []
    acls.listeners.append(lambda: heard.append(len(acls.index)))
    acls.apply({TOPIC: frozenset({entry()})})
    acls.apply({TOPIC: frozenset({entry()}), PREFIX: frozenset()})
    acls.replace_all({PREFIX: frozenset({entry(), entry("User:b")})})
    acls.replace_all({})
    assert heard == [1, 2, 0]


def test_only_differences_are_written():
    acls = StoredAcls()
    acls.apply({TOPIC: frozenset({entry()})})
    one, other = Binding(TOPIC, entry()), Binding(TOPIC, entry("User:b"))
    assert added(acls, [one]) == {}
    assert added(acls, [one, other]) == {TOPIC: {entry(), entry("User:b")}}
    assert removed(acls, [other]) == {}
    assert removed(acls, [one]) == {TOPIC: frozenset()}


def test_acls_outlast_the_node():
    async def scenario():
        world = World()
        controller = await world.start()
        wanted = [Binding(TOPIC, entry()), Binding(PREFIX, entry("User:b", "10.0.0.0/8"))]
        await controller.create_acls(wanted)
        await controller.create_acls([Binding(TOPIC, entry("User:c"))])
        controller = await world.start()
        everything = {TOPIC: {entry(), entry("User:c")}, PREFIX: {wanted[1].entry}}
        assert controller.image.acls.entries == everything
        deleted = await controller.delete_acls([BindingFilter(principal="User:a"), BindingFilter()])
        assert [len(some) for some in deleted] == [1, 3]
        assert controller.image.acls.entries == {}
        assert (await world.start()).image.acls.entries == {}

    asyncio.run(scenario())


def test_every_node_learns_of_acls_and_no_change_is_lost():
    async def scenario(world: ClusterWorld):
        first, second = map(controller_at, await world.start(1, 2))
        many = [
            Binding(ResourcePattern(ResourceType.TOPIC, f"t{number}"), entry())
            for number in range(120)
        ]
        await first.create_acls(many)
        await until(lambda: len(second.image.acls.entries) == 120)
        await asyncio.gather(
            first.create_acls([Binding(TOPIC, entry("User:x"))]),
            second.create_acls([Binding(TOPIC, entry("User:y"))]),
        )
        for metadata in (first, second):
            acls = metadata.image.acls
            await until(lambda a=acls: len(a.entries_of(TOPIC)) == 2)
        await second.delete_acls([BindingFilter(name="t", pattern_type=PatternType.LITERAL)])
        await until(lambda: not first.image.acls.entries_of(TOPIC))
        assert first.image.acls.entries == second.image.acls.entries

    run(scenario)
