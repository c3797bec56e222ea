"""What nodes announce and watch, which options a new cluster gets, and who leads again.

Whole nodes in one event loop, with a coordination store in memory.
"""

import asyncio
import itertools
import threading
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.replication.nodes import Cluster, cluster_of, until

LISTENERS = ("CLIENTS://127.0.0.1:0", "BETWEEN://127.0.0.1:0", "OTHERS://127.0.0.1:0")


class Proxy:
    """In front of the client listener of a node, until it is cut. Whatever connects is held."""

    async def start(self, port: int = 0) -> None:
        self._writers: list[asyncio.StreamWriter] = []
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port)
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)

    def cut(self) -> None:
        """From now on the port refuses."""
        self._server.close()
        for writer in self._writers:
            writer.close()


async def cut_and_restore(cluster: Cluster, listeners: tuple[str, ...]) -> list[dict[int, int]]:
    """The broker epochs before, while the proxies are cut, and after."""
    proxies = {node_id: Proxy() for node_id in (1, 2, 3)}
    for node_id, proxy in proxies.items():
        await proxy.start()
        await cluster.start(
            node_id,
            listeners=",".join(listeners),
            **{
                "listener.security.protocol.map": (
                    "CLIENTS:PLAINTEXT,BETWEEN:PLAINTEXT,OTHERS:PLAINTEXT"
                ),
                "inter.broker.listener.name": "BETWEEN",
                "advertised.listeners": ",".join(
                    one.replace(":0", f":{proxy.port}") if one.startswith("CLIENTS") else one
                    for one in listeners
                ),
            },
        )
    nodes = cluster.nodes.values()
    await until(lambda: all(len(node.image.brokers) == 3 for node in nodes), "all know each other")
    seen = [epochs(cluster)]
    for proxy in proxies.values():
        proxy.cut()
    # A watch needs 100 ms to call a node dead.
    await asyncio.sleep(0.6)
    seen.append(epochs(cluster))
    for proxy in proxies.values():
        await proxy.start(proxy.port)
    await asyncio.sleep(0.2)
    seen.append(epochs(cluster))
    for proxy in proxies.values():
        proxy.cut()
    return seen


def epochs(cluster: Cluster) -> dict[int, int]:
    image = cluster.nodes[1].image
    return {broker.id: broker.epoch for broker in image.brokers.values()}


@pytest.mark.parametrize("listeners", list(itertools.permutations(LISTENERS)))
def test_a_cut_between_clients_and_nodes_fences_no_node(
    listeners: tuple[str, ...], tmp_path: Path
) -> None:
    async def scenario() -> list[dict[int, int]]:
        cluster = Cluster(tmp_path, {})
        try:
            return await cut_and_restore(cluster, listeners)
        finally:
            await cluster.stop()

    before, during, after = asyncio.run(scenario())
    assert len(before) == 3
    assert before == during == after


def test_a_new_cluster_has_one_min_insync_replicas_for_all_nodes(tmp_path: Path) -> None:
    async def scenario() -> None:
        cluster = Cluster(tmp_path, {})
        try:
            first = await cluster.start(1, **{"min.insync.replicas": "3"})
            second = await cluster.start(2, **{"min.insync.replicas": "1"})
            for node in (first, second):
                assert node.image.broker_overrides[None] == {"min.insync.replicas": "3"}
                assert node.node.config.int("min.insync.replicas") == 3
        finally:
            await cluster.stop()

    asyncio.run(scenario())


def test_followers_fetch_more_often_than_a_silent_node_counts_as_lost(tmp_path: Path) -> None:
    async def scenario() -> None:
        longest = {"replica.fetch.wait.max.ms": "60000"}
        async with cluster_of(tmp_path, 1, settings=longest) as cluster:
            member = cluster.nodes[1].member
            session_ms = member.membership.store.session_timeout_ms
            assert member._fetcher_settings().wait_ms == session_ms // 3
            member.membership.lease.end()
            assert member._fetcher_settings().wait_ms == 60_000
        async with cluster_of(tmp_path / "usual", 1) as cluster:
            assert cluster.nodes[1].member._fetcher_settings().wait_ms == 500

    asyncio.run(scenario())


class Load:
    """Writes to a topic with acks=all, in a thread, until it is stopped."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.failures: list[str] = []
        self.written = 0
        self._topic = topic
        self._is_over = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "log_level": 0,
                "reconnect.backoff.max.ms": 100,
                "topic.metadata.refresh.interval.ms": 1000,
            }
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.wait(0.005):
            self._producer.produce(self._topic, b"x", on_delivery=self._delivered)
            self._producer.poll(0)
        self._producer.flush(60)

    def _delivered(self, error: object, message: object) -> None:
        if error is None:
            self.written += 1
        else:
            self.failures.append(str(error))

    async def stop(self) -> None:
        self._is_over.set()
        await asyncio.to_thread(self._thread.join)


def test_leaders_are_back_one_check_after_a_kill_and_clients_see_no_error(tmp_path: Path) -> None:
    async def scenario() -> Load:
        settings = {"leader.imbalance.check.interval.seconds": "1"}
        async with cluster_of(tmp_path, settings=settings) as cluster:
            await cluster.create("t", partitions=6)
            before = [state.replicas[0] for state in cluster.nodes[1].image.topics["t"].partitions]
            addresses = ",".join(f"127.0.0.1:{node.port}" for node in cluster.nodes.values())
            load = Load(addresses, "t")
            await until(lambda: load.written > 20, "records are written")
            await cluster.kill(2)
            partitions = cluster.nodes[1].image.topics["t"].partitions
            await until(lambda: all(one.leader in (1, 3) for one in partitions), "others lead")
            await cluster.start(2)
            await until(lambda: [one.leader for one in partitions] == before, "leaders are back")
            seen = load.written
            await until(lambda: load.written > seen + 20, "records are written on")
            await load.stop()
            return load

    load = asyncio.run(scenario())
    assert load.failures == []
