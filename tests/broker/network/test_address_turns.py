import asyncio

from millstream.broker.network.address_turns import AddressTurns


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
