"""Closed ports, with real sockets on the loopback."""

import asyncio

from millstream.cluster.observer import ImageChange
from millstream.cluster.port_watch import PortWatch
from millstream.cluster.state import BrokerState, ClusterImage, Endpoint


class Peer:
    """A process that listens, and can die."""

    def __init__(self):
        self.connections = []
        self.connected = asyncio.Event()

    async def start(self, port=0):
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _accept(self, reader, writer):
        self.connections.append(writer)
        self.connected.set()

    def hang_up(self):
        for writer in self.connections:
            writer.close()
        self.connections.clear()
        self.connected.clear()

    async def die(self):
        self._server.close()
        self.hang_up()


def watch_of(peer, refused, epoch=4):
    broker = BrokerState(2, (Endpoint("PLAINTEXT", "127.0.0.1", peer.port),), epoch=epoch)
    image = ClusterImage(brokers={1: BrokerState(1), 2: broker}, controller_epoch_version=9)
    return image, PortWatch(image, 1, refused, pause_seconds=0.01, retry_seconds=0.01)


async def connected_watch(peer):
    """A watch that is connected to the peer, and what it tells."""
    told = asyncio.Queue()

    async def refused(*what):
        told.put_nowait(what)

    await peer.start()
    _, watch = watch_of(peer, refused)
    watch.start()
    await peer.connected.wait()
    return watch, told


def test_a_dead_process_is_told_with_the_epoch_it_had():
    async def scenario():
        peer = Peer()
        watch, told = await connected_watch(peer)
        await peer.die()
        async with asyncio.timeout(10):
            assert await told.get() == (2, 4, 9)
            # And again, while nobody has acted on it.
            assert await told.get() == (2, 4, 9)
        await watch.stop()

    asyncio.run(scenario())


async def watched_until_it_died(peer):
    """A watch that has just told of a dead process, and its image."""
    told = asyncio.Event()

    async def refused(*what):
        told.set()

    await peer.start()
    image, watch = watch_of(peer, refused)
    watch.start()
    await peer.connected.wait()
    assert not watch.is_suspect(2)
    await peer.die()
    async with asyncio.timeout(10):
        await told.wait()
    return image, watch


def test_a_node_whose_port_refuses_is_suspect_until_it_is_out_of_the_cluster():
    async def scenario():
        image, watch = await watched_until_it_died(Peer())
        assert watch.is_suspect(2)
        del image.brokers[2]
        watch.image_changed(ImageChange(brokers=(2,)))
        assert not watch.is_suspect(2)
        await watch.stop()

    asyncio.run(scenario())


def test_a_node_that_is_back_at_its_port_is_not_suspect():
    async def scenario():
        peer = Peer()
        _, watch = await watched_until_it_died(peer)
        again = Peer()
        await again.start(peer.port)
        async with asyncio.timeout(10):
            await again.connected.wait()
            while watch.is_suspect(2):  # noqa: ASYNC110
                await asyncio.sleep(0)
        await watch.stop()
        await again.die()

    asyncio.run(scenario())


def test_a_connection_that_is_only_closed_is_made_again():
    async def scenario():
        peer, told = Peer(), []

        async def refused(*what):
            told.append(what)

        await peer.start()
        _, watch = watch_of(peer, refused)
        watch.start()
        for _ in range(3):
            async with asyncio.timeout(10):
                await peer.connected.wait()
            peer.hang_up()
        assert told == []
        await watch.stop()
        await peer.die()

    asyncio.run(scenario())


def test_a_connection_is_replaced_before_a_node_would_close_it_as_idle():
    async def scenario():
        peer, told = Peer(), []

        async def refused(*what):
            told.append(what)

        await peer.start()
        image, _ = watch_of(peer, refused)
        watch = PortWatch(image, 1, refused, renew_seconds=0.01)
        watch.start()
        async with asyncio.timeout(10):
            while len(peer.connections) < 4:  # noqa: ASYNC110
                await asyncio.sleep(0)
        assert told == []
        assert not watch.is_suspect(2)
        await watch.stop()
        await peer.die()

    asyncio.run(scenario())


class DyingPeer(Peer):
    """As the kernel ends a process: its connections go first, its port a moment later."""

    async def _accept(self, reader, writer):
        is_first = not self.connected.is_set()
        await super()._accept(reader, writer)
        if not is_first:
            await self.die()


def test_a_process_whose_port_closes_after_its_connections_is_told():
    async def scenario():
        peer = DyingPeer()
        watch, told = await connected_watch(peer)
        peer.connections.pop().close()
        async with asyncio.timeout(10):
            assert await told.get() == (2, 4, 9)
        await watch.stop()

    asyncio.run(scenario())


def test_a_node_that_is_gone_from_the_image_is_watched_no_more():
    async def scenario():
        peer, told = Peer(), []

        async def refused(*what):
            told.append(what)

        await peer.start()
        image, watch = watch_of(peer, refused)
        watch.start()
        await peer.connected.wait()
        image.brokers.pop(2)
        watch.image_changed(ImageChange(brokers=(2,)))
        await peer.die()
        await asyncio.sleep(0.05)
        assert told == []
        await watch.stop()

    asyncio.run(scenario())
