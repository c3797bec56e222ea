"""Nodes announce the listener between nodes first, and watch each other there."""

import asyncio
import itertools
from pathlib import Path

import pytest

from tests.replication.nodes import Cluster, until

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
    # Two probes are 100 ms apart, and a watch tries again after a second.
    await asyncio.sleep(1.5)
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
