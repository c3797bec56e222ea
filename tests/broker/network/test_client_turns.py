import asyncio
from collections.abc import Callable

import pytest

from millstream.broker.network import client_turns
from millstream.broker.network.client_turns import (
    ACTIVE_SECONDS,
    ITERATIONS_MAX,
    REST_SECONDS,
    SHARED_TURN_SECONDS_MAX,
    TURN_SECONDS_MAX,
    TURNS_BEFORE_REST,
    TURNS_OF_A_CROWD,
    ClientTurns,
)


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else uses the loop, however long an iteration takes here."""
    monkeypatch.setattr(client_turns, "QUIET_SECONDS_MAX", float("inf"))


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others use every iteration."""
    monkeypatch.setattr(client_turns, "QUIET_SECONDS_MAX", -1.0)


@pytest.mark.usefixtures("quiet")
def test_one_connection_continues_in_an_iteration_and_clients_take_turns() -> None:
    async def test() -> None:
        turns, seen = ClientTurns(), []
        for name in ("a1", "a2", "a3", "b1"):
            turns.rest(name[0], lambda name=name: seen.append(name))  # type: ignore[misc]
        expected: list[str] = []
        for name in ("a1", "b1", "a2", "a3"):
            assert seen == expected
            expected.append(name)
            await asyncio.sleep(0)
            assert seen == expected

    asyncio.run(test())


@pytest.mark.usefixtures("quiet")
def test_a_turn_is_over_while_the_client_has_a_line() -> None:
    async def test() -> None:
        turns = ClientTurns()
        assert not turns.is_over("a")
        turns.rest("a", lambda: None)
        assert turns.is_over("a")
        assert not turns.is_over("b")
        await asyncio.sleep(0)
        assert not turns.is_over("a")

    asyncio.run(test())


@pytest.mark.usefixtures("quiet")
def test_a_connection_that_rests_again_waits_behind_the_others() -> None:
    async def test() -> None:
        turns, seen = ClientTurns(), []

        def first() -> None:
            seen.append("first")
            if len(seen) < 3:
                turns.rest("a", first)

        turns.rest("a", first)
        turns.rest("a", lambda: seen.append("second"))
        for _ in range(4):
            await asyncio.sleep(0)
        assert seen == ["first", "second", "first"]

    asyncio.run(test())


@pytest.mark.usefixtures("busy")
def test_while_others_use_the_loop_they_get_several_iterations() -> None:
    async def test() -> None:
        turns, seen = ClientTurns(), []
        for name in ("a1", "a2"):
            turns.rest("a", lambda name=name: seen.append(name))  # type: ignore[misc]
        expected: list[str] = []
        for name in ("a1", "a2"):
            for _ in range(ITERATIONS_MAX - 1):
                await asyncio.sleep(0)
                assert seen == expected
            expected.append(name)
            await asyncio.sleep(0)
            assert seen == expected

    asyncio.run(test())


class Timers:
    """Stands in for the loop: what is to be called soon, and what later."""

    def __init__(self) -> None:
        self.now = 100.0
        self.soon: list[Callable[[], None]] = []
        self.later: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, call: Callable[[], None]) -> None:
        self.soon.append(call)

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        self.later.append((seconds, call))


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> Timers:
    found = Timers()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: found)
    return found


@pytest.mark.usefixtures("quiet")
def test_while_several_addresses_are_active_the_lines_rest_after_a_few_turns(
    timers: Timers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_turns.time, "monotonic", timers.time)  # type: ignore[attr-defined]
    turns, seen = ClientTurns(), []

    def serve() -> None:
        seen.append(len(seen))
        turns.rest("a", serve)

    turns.rest("a", serve)
    turns.hear("a", timers.now)
    turns.hear("good", timers.now)
    for rests in (1, 2):
        for _ in range(TURNS_BEFORE_REST - (rests == 2)):
            timers.soon.pop()()
        assert len(seen) == rests * TURNS_BEFORE_REST
        timers.soon.pop()()
        [(seconds, go_on)] = timers.later
        assert seconds == REST_SECONDS
        timers.later.clear()
        go_on()


@pytest.mark.usefixtures("quiet")
def test_a_crowd_behind_one_address_rests_sooner_than_a_single_connection(
    timers: Timers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_turns.time, "monotonic", timers.time)  # type: ignore[attr-defined]
    turns, seen = ClientTurns(), []
    before_rest = TURNS_BEFORE_REST // TURNS_OF_A_CROWD
    for number in range(before_rest + 2):
        turns.rest("a", lambda number=number: seen.append(number))  # type: ignore[misc]
    turns.hear("a", timers.now)
    turns.hear("good", timers.now)
    for _ in range(before_rest):
        timers.soon.pop()()
        assert not timers.later
    timers.soon.pop()()
    assert len(seen) == before_rest
    assert len(timers.later) == 1


def test_turns_are_short_while_several_clients_send(
    timers: Timers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_turns.time, "monotonic", timers.time)  # type: ignore[attr-defined]
    turns = ClientTurns()
    turns.hear("a", timers.now)
    timers.now += 2 * ACTIVE_SECONDS
    turns.hear("a", timers.now)
    assert turns.turn_seconds() == TURN_SECONDS_MAX
    turns.hear("good", timers.now)
    assert turns.turn_seconds() == SHARED_TURN_SECONDS_MAX


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("what", ["alone", "long ago"])
def test_nobody_rests_for_addresses_that_do_not_need_the_loop(
    timers: Timers, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(client_turns.time, "monotonic", timers.time)  # type: ignore[attr-defined]
    turns, seen = ClientTurns(), []
    turns.hear("a", timers.now)
    if what == "long ago":
        turns.hear("other", timers.now)
    timers.now += 2 * ACTIVE_SECONDS
    turns.hear("other" if what == "long ago" else "a", timers.now)
    assert not turns.is_shared()
    for _ in range(2 * TURNS_BEFORE_REST):
        turns.rest("a", lambda: seen.append("a"))
        timers.soon.pop()()
    assert len(seen) == 2 * TURNS_BEFORE_REST
    assert not timers.later


def test_a_client_has_others_when_somebody_else_was_heard(
    timers: Timers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while it waits for an answer itself, and is silent."""
    monkeypatch.setattr(client_turns.time, "monotonic", timers.time)  # type: ignore[attr-defined]
    turns = ClientTurns()
    assert not turns.has_others("a")
    assert not turns.is_in_use()
    turns.hear("a", timers.now)
    assert turns.is_in_use()
    timers.now += 2 * ACTIVE_SECONDS
    for _ in range(3):
        turns.hear("good", timers.now)
        assert turns.has_others("a")
        timers.now += 2 * ACTIVE_SECONDS
    assert not turns.has_others("a")
    assert not turns.is_in_use()
    turns.hear("good", timers.now)
    assert not turns.has_others("good")
    turns.hear("a", timers.now)
    assert turns.has_others("good")
    assert turns.has_others("a")
