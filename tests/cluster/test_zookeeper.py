"""What only the real one has: sessions that end, connections that break."""

import asyncio
import signal

import pytest

from millstream.cluster.coordination import (
    CoordinationFailed,
    Create,
    Put,
    SessionEnded,
    UnknownOutcome,
)
from millstream.cluster.ensemble import Ensemble
from millstream.cluster.zookeeper import end_session, open_zookeeper
from tests.support.zookeeper import new_root, spark_jars, zookeeper_server

pytestmark = [pytest.mark.slow, pytest.mark.java]


def ensemble_at(address: str, **settings) -> Ensemble:
    return Ensemble(address, **{"root": new_root(), "session_timeout_ms": 4_000, **settings})


def test_a_dead_owners_session_is_ended_at_once_and_its_nodes_go(zookeeper_of_spark):
    async def scenario():
        ensemble = ensemble_at(zookeeper_of_spark)
        dead, living = await open_zookeeper(ensemble), await open_zookeeper(ensemble)
        ended, gone = asyncio.Event(), asyncio.Event()
        dead.on_end(ended.set)
        await dead.commit([Create("/owner", is_ephemeral=True)])
        await living.exists("/owner", gone.set)
        await end_session(ensemble, dead.key)
        async with asyncio.timeout(2):
            await gone.wait()
            await ended.wait()
        with pytest.raises(SessionEnded):
            await dead.exists("/owner")
        with pytest.raises(SessionEnded):
            await dead.commit([Create("/again")])
        # Nobody's any more: nothing to do.
        await end_session(ensemble, living.key)
        await end_session(ensemble, living.key)
        await dead.close()
        await living.close()

    asyncio.run(scenario())


def test_the_session_timeout_is_what_the_server_grants(zookeeper_of_spark):
    async def scenario():
        store = await open_zookeeper(ensemble_at(zookeeper_of_spark, session_timeout_ms=100))
        assert store.session_timeout_ms == 1_000
        await store.close()

    asyncio.run(scenario())


def test_no_server_is_one_clear_failure():
    async def scenario():
        with pytest.raises(CoordinationFailed, match=r"no ZooKeeper answers at 127\.0\.0\.1:1"):
            await open_zookeeper(Ensemble("127.0.0.1:1", connect_timeout_ms=300))

    asyncio.run(scenario())


def test_a_server_that_is_away_fails_requests_at_once_and_the_session_goes_on(tmp_path):
    async def scenario(server):
        store = await open_zookeeper(ensemble_at(server.address, session_timeout_ms=20_000))
        await store.commit([Create("/a", is_ephemeral=True)])
        hint = asyncio.Event()
        await store.get("/a", hint.set)
        server.process.send_signal(signal.SIGSTOP)  # stopped: a write is sent and not answered
        write = asyncio.create_task(store.commit([Put("/a", b"perhaps")]))
        await asyncio.sleep(0.1)
        server.kill()
        with pytest.raises(UnknownOutcome):
            await write
        with pytest.raises(CoordinationFailed):
            await store.get("/a")
        with pytest.raises(CoordinationFailed) as refused:
            await store.commit([Put("/a", b"later")])
        # That one was not sent at all, so it is no riddle.
        assert not isinstance(refused.value, UnknownOutcome)
        server.start(spark_jars())
        await hint.wait()
        while not store.is_connected:  # noqa: ASYNC110  # kazoo's own timing
            await asyncio.sleep(0.05)
        await store.sync()
        assert (await store.get("/a")).data in (b"", b"perhaps")
        assert await store.commit([Put("/a", b"certainly")])
        await store.close()

    with zookeeper_server(tmp_path / "zookeeper") as server:
        asyncio.run(scenario(server))
