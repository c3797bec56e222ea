import asyncio
import threading
from typing import Any

from millstream.cluster.stores.kazoo_client import WatchingClient
from millstream.cluster.stores.watchdog import Watchdog
from millstream.cluster.stores.zookeeper import _stop


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


def test_a_session_that_is_being_given_up_is_closed_when_its_connection_has_ended():
    """kazoo refuses to close one that runs, and the member would not come back."""
    client: Any = WatchingClient("127.0.0.1:1", on_session_timeout=lambda ms: None)
    connection = client._connection
    # As if `stop` was called by the watchdog and the connection was in an attempt to connect.
    client._stopped.set()
    connection.connection_stopped.clear()
    ending = threading.Timer(0.1, connection.connection_stopped.set)
    ending.start()
    _stop(client)
    assert connection.connection_stopped.is_set()
    ending.join()
