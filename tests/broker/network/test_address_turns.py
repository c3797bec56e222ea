import asyncio

import pytest

from millstream.broker.network import address_turns
from millstream.broker.network.address_turns import ITERATIONS_MAX, AddressTurns


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else uses the loop, however long an iteration takes here."""
    monkeypatch.setattr(address_turns, "QUIET_SECONDS_MAX", float("inf"))


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others use every iteration."""
    monkeypatch.setattr(address_turns, "QUIET_SECONDS_MAX", -1.0)


@pytest.mark.usefixtures("quiet")
def test_one_connection_of_each_address_continues_in_an_iteration() -> None:
    async def test() -> None:
        turns, seen = AddressTurns(), []
        for name in ("a1", "a2", "a3", "b1"):
            turns.rest(name[0], lambda name=name: seen.append(name))  # type: ignore[misc]
        assert seen == []
        await asyncio.sleep(0)
        assert seen == ["a1", "b1"]
        await asyncio.sleep(0)
        assert seen == ["a1", "b1", "a2"]
        await asyncio.sleep(0)
        assert seen == ["a1", "b1", "a2", "a3"]

    asyncio.run(test())


@pytest.mark.usefixtures("quiet")
def test_a_turn_is_over_while_the_address_has_a_line() -> None:
    async def test() -> None:
        turns = AddressTurns()
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
        turns, seen = AddressTurns(), []

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
        turns, seen = AddressTurns(), []
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
