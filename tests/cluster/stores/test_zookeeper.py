"""What only the real one has: sessions that end, connections that break."""

import asyncio
import contextlib
import signal
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest

from millstream.cluster.stores.ensemble import Ensemble, SaslLogin
from millstream.cluster.stores.store import (
    CoordinationFailed,
    Create,
    Delete,
    Put,
    SessionEnded,
    UnknownOutcome,
)
from millstream.cluster.stores.watchdog import Watchdog
from millstream.cluster.stores.zookeeper import (
    ZooKeeper,
    end_session,
    open_for_directory,
    open_zookeeper,
)
from millstream.testing.relay import Relay
from tests.support.ports import reserve_port
from tests.support.tools import require, run_checked
from tests.support.zookeeper import (
    ensemble_at,
    new_root,
    spark_jars,
    zookeeper_server,
    zookeeper_with_sasl,
)

pytestmark = [pytest.mark.slow, pytest.mark.java]


def quick_ensemble(address: str, **settings) -> Ensemble:
    return ensemble_at(address, **{"root": new_root(), "session_timeout_ms": 4_000, **settings})


@contextlib.contextmanager
def relay_to(address: str) -> Iterator[Relay]:
    """A session that is resumed elsewhere fights for it until it is cut off, as a dead owner is."""
    relay = Relay(int(address.rpartition(":")[2]))
    try:
        yield relay
    finally:
        relay.close()


def through(relay: Relay, ensemble: Ensemble) -> Ensemble:
    return replace(ensemble, hosts=f"127.0.0.1:{relay.port}")


def test_a_dead_owners_session_is_ended_at_once_and_its_nodes_go(zookeeper_of_spark):
    async def scenario(relay):
        # Far longer than what follows may take.
        ensemble = quick_ensemble(zookeeper_of_spark, session_timeout_ms=40_000)
        dead = await open_zookeeper(through(relay, ensemble))
        living = await open_zookeeper(ensemble)
        ended, gone = asyncio.Event(), asyncio.Event()
        dead.on_end(ended.set)
        await dead.commit([Create("/owner", is_ephemeral=True)])
        await living.exists("/owner", gone.set)
        relay.cut()
        await end_session(ensemble, dead.key)
        relay.heal()
        async with asyncio.timeout(20):
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

    with relay_to(zookeeper_of_spark) as relay:
        asyncio.run(scenario(relay))


def test_the_session_timeout_is_what_the_server_grants(zookeeper_of_spark):
    async def scenario():
        store = await open_zookeeper(quick_ensemble(zookeeper_of_spark, session_timeout_ms=100))
        assert store.session_timeout_ms == 1_000
        await store.close()

    asyncio.run(scenario())


def test_a_loop_that_stands_still_costs_the_session_once_others_rely_on_it(
    zookeeper_of_spark, monkeypatch
):
    watched = []
    monkeypatch.setattr(Watchdog, "start", lambda self, timeout_ms: watched.append(timeout_ms))

    async def scenario():
        store = await open_zookeeper(quick_ensemble(zookeeper_of_spark))
        ended = asyncio.Event()
        store.on_end(ended.set)
        await store.commit([Create("/topic")])
        # A start may take long.
        assert watched == []
        await store.commit([Create("/owner", is_ephemeral=True)])
        await store.commit([Create("/controller", is_ephemeral=True)])
        assert watched == [store.session_timeout_ms]
        for _ in range(3):
            store._watchdog.look()
        async with asyncio.timeout(20):
            await ended.wait()
        with pytest.raises(SessionEnded, match="the event loop was blocked"):
            await store.exists("/owner")
        await store.close()

    asyncio.run(scenario())


def test_no_server_is_one_clear_failure():
    async def scenario():
        with pytest.raises(CoordinationFailed, match=r"no ZooKeeper answers at 127\.0\.0\.1:1"):
            await open_zookeeper(ensemble_at("127.0.0.1:1", connect_timeout_ms=300))

    asyncio.run(scenario())


def test_a_server_that_is_away_fails_requests_at_once_and_the_session_goes_on(tmp_path):
    async def scenario(server):
        store = await open_zookeeper(quick_ensemble(server.address, session_timeout_ms=20_000))
        await store.commit([Create("/a", is_ephemeral=True)])
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
        while not store.is_connected:  # noqa: ASYNC110  # kazoo's own timing
            await asyncio.sleep(0.05)
        await store.sync()
        assert (await store.get("/a")).data in (b"", b"perhaps")
        assert await store.commit([Put("/a", b"certainly")])
        await store.close()

    with zookeeper_server(tmp_path / "zookeeper") as server:
        asyncio.run(scenario(server))


async def _cut_off(store: ZooKeeper, relay: Relay) -> None:
    relay.cut()
    while store.is_connected:  # noqa: ASYNC110  # kazoo's own timing
        await asyncio.sleep(0.01)


async def _connect_again(store: ZooKeeper, relay: Relay) -> None:
    relay.heal()
    while not store.is_connected:  # noqa: ASYNC110  # kazoo's own timing
        await asyncio.sleep(0.01)
    # What has changed is reported before anything is answered.
    await store.sync()


def test_after_a_lost_connection_only_what_has_changed_is_reported(zookeeper_of_spark):
    async def scenario(relay):
        ensemble = quick_ensemble(zookeeper_of_spark, session_timeout_ms=40_000)
        other = await open_zookeeper(ensemble)
        store = await open_zookeeper(through(relay, ensemble))
        paths = ["/same", "/changed", "/deleted", "/recreated", "/parent", "/alone"]
        await other.commit([Create(path) for path in paths])
        hints: list[str] = []
        for path in paths[:4]:
            await store.get(path, partial(hints.append, path))
        for path in paths[4:]:
            await store.children(path, partial(hints.append, path))
        await store.exists("/created", partial(hints.append, "/created"))
        await _cut_off(store, relay)
        await other.commit([Put("/changed", b"1"), Delete("/deleted"), Delete("/recreated")])
        await other.commit([Create("/recreated"), Create("/parent/child"), Create("/created")])
        await _connect_again(store, relay)
        assert sorted(hints) == ["/changed", "/created", "/deleted", "/parent", "/recreated"]
        # The other watches are set at the new server.
        await other.commit([Put("/same", b"1"), Create("/alone/child")])
        await store.sync()
        assert sorted(hints[5:]) == ["/alone", "/same"]
        await store.close()
        await other.close()

    with relay_to(zookeeper_of_spark) as relay:
        asyncio.run(scenario(relay))


def test_watches_that_are_too_many_for_one_request_outlive_a_lost_connection(zookeeper_of_spark):
    async def scenario(relay):
        ensemble = quick_ensemble(zookeeper_of_spark, session_timeout_ms=40_000)
        other = await open_zookeeper(ensemble)
        store = await open_zookeeper(through(relay, ensemble))
        # Together more than a megabyte, which is what ZooKeeper takes at once.
        paths = [f"/{number:05}{'x' * 500}" for number in range(2500)]
        for start in range(0, len(paths), 500):
            await other.commit([Create(path) for path in paths[start : start + 500]])
        hints: list[str] = []
        for path in paths:
            await store.get(path, partial(hints.append, path))
        await _cut_off(store, relay)
        await other.commit([Put(path, b"1") for path in paths[::1000]])
        await _connect_again(store, relay)
        assert sorted(hints) == paths[::1000]
        await store.close()
        await other.close()

    with relay_to(zookeeper_of_spark) as relay:
        asyncio.run(scenario(relay))


def test_nodes_log_in_by_sasl(tmp_path):
    async def scenario(address, relay):
        member = ensemble_at(address, "/x", sasl=SaslLogin("nodes", "secret"), is_protected=True)
        store = await open_zookeeper(through(relay, member))
        await store.commit([Create("/mine", b"1")])
        relay.cut()
        fellow = await open_zookeeper(member, resume=store.key)
        await fellow.commit([Put("/mine", b"2")])
        other = await open_zookeeper(ensemble_at(address, sasl=SaslLogin("other", "else")))
        with pytest.raises(CoordinationFailed, match="refused"):
            await other.commit([Put("/x/mine", b"3")])
        assert (await other.get("/x/mine")).data == b"2"
        for sasl in (SaslLogin("nodes", "wrong"), SaslLogin("nobody", "secret")):
            with pytest.raises(CoordinationFailed, match="refused the login"):
                await open_zookeeper(ensemble_at(address, sasl=sasl))
        # The server closes a session that asks before it has logged in.
        with pytest.raises(CoordinationFailed):
            await open_zookeeper(ensemble_at(address))
        for each in (fellow, other, store):
            await each.close()

    users = {"nodes": "secret", "other": "else"}
    with (
        zookeeper_with_sasl(tmp_path / "zookeeper", users) as server,
        relay_to(server.address) as relay,
    ):
        asyncio.run(scenario(server.address, relay))


def test_a_wrong_password_is_refused_where_sasl_is_not_required(tmp_path):
    async def scenario(address):
        wrong = ensemble_at(address, sasl=SaslLogin("nodes", "wrong"), connect_timeout_ms=3_000)
        with pytest.raises(CoordinationFailed):
            await open_zookeeper(wrong)

    users = {"nodes": "secret"}
    with zookeeper_with_sasl(tmp_path / "zookeeper", users, is_required=False) as server:
        asyncio.run(scenario(server.address))


def test_a_session_with_sasl_outlives_a_restart_of_the_server(tmp_path):
    async def scenario(server):
        store = await open_zookeeper(ensemble_at(server.address, sasl=SaslLogin("nodes", "secret")))
        await store.commit([Create("/a")])
        ended = []
        store.on_end(lambda: ended.append(True))
        for _ in range(2):
            server.kill()
            await asyncio.to_thread(server.start, spark_jars())
            deadline = asyncio.get_running_loop().time() + 60
            while True:
                with contextlib.suppress(CoordinationFailed):
                    await store.commit([Put("/a", b"x")])
                    break
                assert asyncio.get_running_loop().time() < deadline
                await asyncio.sleep(0.1)
        assert ended == []
        await store.close()

    with zookeeper_with_sasl(tmp_path / "zookeeper", {"nodes": "secret"}) as server:
        asyncio.run(scenario(server))


def test_what_is_protected_is_for_those_who_know_the_digest(zookeeper_of_spark):
    async def scenario():
        root = new_root()
        member = ensemble_at(zookeeper_of_spark, root, digest="nodes:secret", is_protected=True)
        store, fellow = await open_zookeeper(member), await open_zookeeper(member)
        await store.commit([Create("/mine", b"1")])
        await fellow.commit([Put("/mine", b"2")])
        stranger = await open_zookeeper(ensemble_at(zookeeper_of_spark))
        what_to_set = "refused .*Set millstream.zookeeper.digest"
        with pytest.raises(CoordinationFailed, match=what_to_set):
            await stranger.commit([Put(f"{root}/mine", b"3")])
        # Tools read what is no secret.
        assert (await stranger.get(f"{root}/mine")).data == b"2"
        await store.commit([Create("/cluster"), Create("/cluster/secret", b"s")])
        await store.commit([Create("/config"), Create("/config/users"), Create("/config/users/a")])
        for secret in ("/cluster/secret", "/config/users/a"):
            await fellow.get(secret)
            with pytest.raises(CoordinationFailed, match=what_to_set):
                await stranger.get(root + secret)
        for each in (store, fellow, stranger):
            await each.close()

    asyncio.run(scenario())


OLD_PATHS = [
    *("/cluster", "/cluster/id", "/cluster/secret", "/brokers", "/brokers/topics"),
    *("/brokers/topics/t", "/config", "/config/users", "/config/users/ann", "/controller_epoch"),
    *("/consumers", "/consumers/old", "/of_others"),
    # More than are looked at together.
    *(f"/brokers/topics/t/{number}" for number in range(1200)),
]


async def everything_there_is(address: str, root: str) -> ZooKeeper:
    """A cluster that nodes without a login have created, and one of them."""
    node = await open_zookeeper(ensemble_at(address, root))
    for start in range(0, len(OLD_PATHS), 500):
        await node.commit([Create(path, b"old") for path in OLD_PATHS[start : start + 500]])
    return node


def test_what_was_there_before_the_login_is_protected_if_the_options_say_so(
    zookeeper_of_spark, tmp_path, caplog
):
    async def scenario():
        root = new_root()
        stranger = await everything_there_is(zookeeper_of_spark, root)
        member = ensemble_at(zookeeper_of_spark, root, digest="nodes:secret", is_protected=True)
        # Of two rounds of restarts the first: other nodes have no login yet.
        store = await open_for_directory(member, tmp_path)
        await stranger.commit([Put(path, b"1") for path in OLD_PATHS[:500]])
        assert "set zookeeper.set.acl=true" in caplog.text
        await store.close()
        member = replace(member, protects_older=True)
        store = await open_for_directory(member, tmp_path)
        for path in (*OLD_PATHS[:10], OLD_PATHS[-1]):
            with pytest.raises(CoordinationFailed, match="refused"):
                await stranger.commit([Put(path, b"2")])
            await store.commit([Put(path, b"3")])
        for path in ("/cluster/secret", "/config/users/ann"):
            with pytest.raises(CoordinationFailed, match="refused"):
                await stranger.get(path)
        with pytest.raises(CoordinationFailed, match="refused"):
            await stranger.commit([Create("/brokers/topics/u")])
        with pytest.raises(CoordinationFailed, match="refused"):
            await stranger.commit([Delete("/controller_epoch")])
        # What is no secret can be read, and what is not the cluster's is left alone.
        assert (await stranger.get("/brokers/topics/t")).data == b"3"
        await stranger.commit([Put("/consumers/old", b"4"), Put("/of_others", b"4")])
        for each in (store, stranger):
            await each.close()

    asyncio.run(scenario())


def test_protecting_goes_on_where_it_was_interrupted(zookeeper_of_spark, tmp_path, monkeypatch):
    async def scenario():
        root = new_root()
        stranger = await everything_there_is(zookeeper_of_spark, root)
        member = ensemble_at(
            zookeeper_of_spark,
            root,
            digest="nodes:secret",
            is_protected=True,
            protects_older=True,
        )
        protect_one, left = ZooKeeper._protect_one, iter(range(600))

        async def interrupted(self: ZooKeeper, path: str) -> bool:
            if next(left, None) is None:
                raise CoordinationFailed("no connection")
            return await protect_one(self, path)

        monkeypatch.setattr(ZooKeeper, "_protect_one", interrupted)
        with pytest.raises(CoordinationFailed, match="no connection"):
            await open_for_directory(member, tmp_path)
        # The secrets were first.
        with pytest.raises(CoordinationFailed, match="refused"):
            await stranger.get("/cluster/secret")
        await stranger.commit([Put("/cluster/id", b"1")])
        monkeypatch.setattr(ZooKeeper, "_protect_one", protect_one)
        # Two nodes at once.
        stores = await asyncio.gather(
            open_for_directory(member, tmp_path / "a"), open_for_directory(member, tmp_path / "b")
        )
        for path in ("/cluster/id", "/brokers/topics/t", OLD_PATHS[-1]):
            with pytest.raises(CoordinationFailed, match="refused"):
                await stranger.commit([Put(path, b"2")])
        for each in (*stores, stranger):
            await each.close()

    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    asyncio.run(scenario())


def test_the_top_of_zookeepers_tree_is_not_a_clusters_own(tmp_path):
    async def scenario(address):
        stranger = await open_zookeeper(ensemble_at(address))
        await stranger.commit([Create("/cluster"), Create("/cluster/id"), Create("/of_others")])
        member = ensemble_at(address, digest="a:b", is_protected=True, protects_older=True)
        store = await open_for_directory(member, tmp_path)
        with pytest.raises(CoordinationFailed, match="refused"):
            await stranger.commit([Put("/cluster/id", b"2")])
        await stranger.commit([Put("/of_others", b"2"), Create("/more_of_others")])
        for each in (store, stranger):
            await each.close()

    with zookeeper_server(tmp_path / "zookeeper") as server:
        asyncio.run(scenario(server.address))


def test_tls_to_a_server_with_a_certificate(tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    run_checked(
        [
            *(require("openssl"), "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-keyout", str(key), "-out", str(certificate), "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
        ],
        timeout_seconds=30,
    )
    both = tmp_path / "both.pem"
    both.write_text(key.read_text() + certificate.read_text())
    port = reserve_port()
    settings = f"""secureClientPort={port}
secureClientPortAddress=127.0.0.1
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
ssl.keyStore.location={both}
ssl.trustStore.location={certificate}
ssl.clientAuth=none
"""
    ensemble = ensemble_at(
        f"127.0.0.1:{port}", is_tls=True, authority_file=str(certificate), connect_timeout_ms=10_000
    )

    async def scenario():
        store = await open_zookeeper(ensemble)
        await store.commit([Create("/secret", b"kept")])
        assert (await store.get("/secret")).data == b"kept"
        await store.close()
        plain = ensemble_at(f"127.0.0.1:{port}", connect_timeout_ms=500)
        with pytest.raises(CoordinationFailed, match="no ZooKeeper answers"):
            await open_zookeeper(plain)

    with zookeeper_server(tmp_path / "zookeeper", settings=settings):
        asyncio.run(scenario())


class SilentOnce:
    """A way to a server that can be cut; the first connection after that is never answered."""

    def __init__(self, address: str) -> None:
        self._to = address.rsplit(":", 1)
        self._writers: list[asyncio.StreamWriter] = []
        self._is_silent = False
        self.silent_connections = 0

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    def cut(self) -> None:
        self._is_silent = True
        for writer in self._writers:
            writer.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_silent:
            self._is_silent = False
            self.silent_connections += 1
            await reader.read()
            writer.close()
            return
        there, back = await asyncio.open_connection(*self._to)
        self._writers += [writer, back]
        await asyncio.gather(_copy(reader, back), _copy(there, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
    writer.close()


def test_a_server_that_never_answers_a_connection_does_not_cost_the_session(zookeeper_of_spark):
    async def scenario():
        way = SilentOnce(zookeeper_of_spark)
        store = await open_zookeeper(quick_ensemble(await way.start(), session_timeout_ms=8_000))
        await store.commit([Create("/mine", is_ephemeral=True)])
        way.cut()
        async with asyncio.timeout(20):
            while way.silent_connections == 0 or not store.is_connected:  # noqa: ASYNC110  # a thread
                await asyncio.sleep(0.01)
        assert await store.exists("/mine")
        await store.close()
        await way.stop()

    asyncio.run(scenario())
