import asyncio

from millstream.cluster.stores.watchdog import Watchdog


def test_a_loop_that_answers_keeps_its_session():
    async def scenario():
        given_up = []
        watchdog = Watchdog(asyncio.get_running_loop(), lambda: given_up.append(True))
        for _ in range(5):
            watchdog.look()
            await asyncio.sleep(0)
        assert given_up == []

    asyncio.run(scenario())


def test_a_loop_that_stands_still_for_two_looks_loses_it_once():
    async def scenario():
        given_up = []
        watchdog = Watchdog(asyncio.get_running_loop(), lambda: given_up.append(True))
        watchdog.look()
        watchdog.look()
        assert given_up == []
        watchdog.look()
        assert given_up == [True]

    asyncio.run(scenario())


def test_one_late_answer_is_forgiven():
    async def scenario():
        given_up = []
        watchdog = Watchdog(asyncio.get_running_loop(), lambda: given_up.append(True))
        for _ in range(3):
            watchdog.look()
            watchdog.look()
            await asyncio.sleep(0)
        assert given_up == []

    asyncio.run(scenario())


def test_a_loop_that_is_closed_is_watched_no_more():
    loop = asyncio.new_event_loop()
    given_up = []
    watchdog = Watchdog(loop, lambda: given_up.append(True))
    loop.close()
    for _ in range(4):
        watchdog.look()
    assert watchdog._is_over.is_set()
