from collections.abc import Callable
from uuid import UUID

import pytest

from millstream.broker.coordination.share_sessions import (
    CLIENT_PARTITIONS_MAX,
    SessionKey,
    ShareSession,
    ShareSessions,
    Where,
)
from millstream.errors import KafkaCode, KafkaError

KEY = SessionKey("g", "m1")
OTHER = SessionKey("g", "m2")
PLACES = [Where(UUID(int=1), number) for number in range(3)]


class Connection:
    def __init__(self, client: str = "10.0.0.1") -> None:
        self.client = client
        self.is_closed = False
        self.on_closed: Callable[[], None] | None = None


class World:
    def __init__(self) -> None:
        self.ended: list[ShareSession] = []
        self.empty: list[str] = []
        self.sessions = ShareSessions(lambda: 2, self.ended.extend, self.empty.append)


def test_each_request_has_the_next_epoch() -> None:
    world = World()
    world.sessions.open(KEY, Connection(), PLACES)
    for epoch in (1, 2, 3):
        assert list(world.sessions.resume(KEY, epoch).partitions) == PLACES
    with pytest.raises(KafkaError) as error:
        world.sessions.resume(KEY, 3)
    assert error.value.code is KafkaCode.INVALID_SHARE_SESSION_EPOCH
    with pytest.raises(KafkaError) as error:
        world.sessions.require(OTHER)
    assert error.value.code is KafkaCode.SHARE_SESSION_NOT_FOUND


def test_after_the_last_epoch_follows_the_first() -> None:
    world = World()
    world.sessions.open(KEY, Connection(), PLACES).epoch = 2**31 - 1
    assert world.sessions.resume(KEY, 2**31 - 1).epoch == 1


def test_a_closed_connection_ends_its_sessions_only() -> None:
    world = World()
    first, second = Connection(), Connection()
    world.sessions.open(KEY, first, PLACES)
    world.sessions.open(OTHER, second, PLACES)
    assert first.on_closed is not None
    first.on_closed()
    assert [session.key for session in world.ended] == [KEY]
    assert len(world.sessions) == 1


def test_a_session_that_was_opened_again_outlives_its_first_connection() -> None:
    world = World()
    first, second = Connection(), Connection()
    world.sessions.open(KEY, first, PLACES)
    world.sessions.open(KEY, second, PLACES)
    assert first.on_closed is not None
    first.on_closed()
    assert world.ended == []
    assert world.sessions.resume(KEY, 1).connection is second


def test_a_session_is_open_until_it_ends_or_another_takes_its_place() -> None:
    world = World()
    first = world.sessions.open(KEY, Connection(), PLACES)
    assert world.sessions.is_open(first)
    second = world.sessions.open(KEY, Connection(), PLACES)
    assert (world.sessions.is_open(first), world.sessions.is_open(second)) == (False, True)
    world.sessions.end(second)
    assert not world.sessions.is_open(second)


def test_there_is_a_limit() -> None:
    world = World()
    world.sessions.open(KEY, Connection(), [])
    world.sessions.open(OTHER, Connection(), [])
    world.sessions.open(OTHER, Connection(), [])
    with pytest.raises(KafkaError) as error:
        world.sessions.open(SessionKey("g", "m3"), Connection(), [])
    assert error.value.code is KafkaCode.SHARE_SESSION_LIMIT_REACHED


def test_a_client_with_fewer_sessions_gets_the_slot_of_one_with_more() -> None:
    world = World()
    greedy = Connection("greedy")
    world.sessions.open(KEY, greedy, PLACES)
    world.sessions.open(OTHER, greedy, PLACES)
    world.sessions.resume(KEY, 1)
    modest = SessionKey("g", "modest")
    world.sessions.open(modest, Connection("modest"), PLACES)
    assert [session.key for session in world.ended] == [OTHER], "the one not used for longest"
    assert (world.sessions.has(KEY), world.sessions.has(modest)) == (True, True)
    # Each has one now.
    for client in ("greedy", "modest", "another"):
        with pytest.raises(KafkaError) as error:
            world.sessions.open(SessionKey("g", "m3"), Connection(client), PLACES)
        assert error.value.code is KafkaCode.SHARE_SESSION_LIMIT_REACHED
    assert len(world.ended) == 1


def test_a_client_has_so_many_partitions_in_all_its_sessions() -> None:
    world = World()
    places = [Where(UUID(int=1), number) for number in range(CLIENT_PARTITIONS_MAX)]
    world.sessions.open(KEY, Connection(), places[:-1])
    session = world.sessions.open(OTHER, Connection(), places[:1])
    world.sessions.add(session, places[:1])
    with pytest.raises(KafkaError) as error:
        world.sessions.add(session, places[:2])
    assert error.value.code is KafkaCode.SHARE_SESSION_LIMIT_REACHED
    assert list(session.partitions) == places[:1]
    with pytest.raises(KafkaError) as error:
        world.sessions.open(OTHER, Connection(), places[:2])
    assert error.value.code is KafkaCode.SHARE_SESSION_LIMIT_REACHED
    assert len(world.sessions.open(OTHER, Connection("another"), places).partitions) == len(places)


def test_a_closed_connection_opens_no_session() -> None:
    """It was closed while its request was read: nobody would end the session."""
    world = World()
    connection = Connection()
    connection.is_closed = True
    with pytest.raises(KafkaError) as error:
        world.sessions.open(KEY, connection, PLACES)
    assert error.value.code is KafkaCode.SHARE_SESSION_NOT_FOUND
    assert len(world.sessions) == 0


def test_a_group_without_sessions_is_forgotten() -> None:
    world = World()
    session = world.sessions.open(KEY, Connection(), [])
    assert world.empty == ["g"], "what was known before may be outdated"
    world.sessions.forget_group_if_empty("g")
    assert world.empty == ["g"]
    world.sessions.end(session)
    world.sessions.forget_group_if_empty("g")
    assert world.empty == ["g", "g"]


def test_absent_partitions_are_set_aside_until_they_exist() -> None:
    world = World()
    session = world.sessions.open(KEY, Connection(), PLACES)
    session.set_aside(PLACES[0])
    session.set_aside(Where(UUID(int=2), 0))
    assert list(session.partitions) == PLACES[1:]
    assert session.size == 3, "it counts nevertheless"
    session.take_back(lambda where: False)
    assert list(session.partitions) == PLACES[1:]
    session.take_back(lambda where: True)
    assert list(session.partitions) == [*PLACES[1:], PLACES[0]]
    # Named again, it is looked for again.
    session.set_aside(PLACES[1])
    world.sessions.add(session, [PLACES[1]])
    assert list(session.partitions) == [PLACES[2], PLACES[0], PLACES[1]]
    session.set_aside(PLACES[1])
    session.forget(PLACES[1])
    assert session.size == 2


def test_partitions_take_turns() -> None:
    session = ShareSession(KEY, Connection(), "a", 1, dict.fromkeys(PLACES))
    assert [session.rotated(by)[0].partition for by in (0, 1, 2, 3)] == [0, 1, 2, 0]
    assert ShareSession(KEY, Connection(), "a", 1).rotated(5) == []
