"""Detects a dead process by its closed port, long before its session times out.

Every node keeps a silent connection to every other, to the listener between nodes. The kernel
closes it when the process at the other end dies, for whatever reason; if the port then refuses
twice, the process is gone. Silence is no such proof: for a hung host or a cut cable, the session
timeout decides. A connection is replaced before the other node would close it as idle, or for a
missing TLS handshake.

Other code decides what follows, with writes that fail if this node is wrong.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from millstream.cluster.observer import ImageChange
from millstream.cluster.state import BrokerState, ClusterImage

log = logging.getLogger(__name__)

PROBES: Final = 2
_PROBE_PAUSE_SECONDS: Final = 0.1
_RETRY_SECONDS: Final = 1.0
# Below the time that a node gives a client for its TLS handshake, 10 s.
_RENEW_SECONDS: Final = 7.0
# How long a refused port is enough to call a node suspect. By then it is out of the cluster,
# or only this node cannot reach it.
SUSPECT_SECONDS_MAX: Final = 2.0

# Called with the node's id, its epoch, and the version of the controller epoch from before
# the port was tried.
Refused = Callable[[int, int, int], Awaitable[None]]


class PortWatch:
    def __init__(
        self,
        image: ClusterImage,
        broker_id: int,
        refused: Refused,
        *,
        pause_seconds: float = _PROBE_PAUSE_SECONDS,
        retry_seconds: float = _RETRY_SECONDS,
        renew_seconds: float = _RENEW_SECONDS,
    ) -> None:
        self._image = image
        self._broker_id = broker_id
        self._refused = refused
        self._pause_seconds = pause_seconds
        self._retry_seconds = retry_seconds
        self._renew_seconds = renew_seconds
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._watched: dict[int, BrokerState] = {}
        # When a connection was last lost, and whose port has refused since.
        self._lost_at: dict[int, float] = {}
        self._refusing: set[int] = set()

    def is_suspect(self, broker_id: int) -> bool:
        """Just lost, and its port refuses: a client that is sent there now cannot connect."""
        if broker_id not in self._refusing:
            return False
        now = asyncio.get_running_loop().time()
        return now - self._lost_at[broker_id] < SUSPECT_SECONDS_MAX

    def start(self) -> None:
        self._follow_image()

    async def stop(self) -> None:
        tasks = list(self._tasks.values())
        self._tasks.clear()
        self._watched.clear()
        self._lost_at.clear()
        self._refusing.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def image_changed(self, change: ImageChange) -> None:
        if change.brokers:
            self._follow_image()

    def _follow_image(self) -> None:
        wanted = {
            broker.id: broker
            for broker in self._image.brokers.values()
            if broker.id != self._broker_id and broker.endpoints
        }
        for broker_id in [i for i, b in self._watched.items() if wanted.get(i) != b]:
            del self._watched[broker_id]
            self._refusing.discard(broker_id)
            self._tasks.pop(broker_id).cancel()
        for broker_id, broker in wanted.items():
            if broker_id not in self._watched:
                self._watched[broker_id] = broker
                task = asyncio.get_running_loop().create_task(self._watch(broker))
                self._tasks[broker_id] = task

    async def _watch(self, broker: BrokerState) -> None:
        # A port that refuses from the first time on may be a problem of this node alone.
        has_stood = False
        while True:
            was_open = await self._until_closed(broker)
            if was_open:
                has_stood = True
                self._lost_at[broker.id] = asyncio.get_running_loop().time()
            is_dead = False
            if has_stood:
                # Even if the last check found the port open: when a process dies, the kernel closes
                # its connections before its listening sockets.
                version = self._image.controller_epoch_version
                is_dead = await self._refuses(broker)
                if is_dead:
                    # In a separate task: what it writes ends this one.
                    handled = self._refused(broker.id, broker.epoch, version)
                    await asyncio.shield(asyncio.ensure_future(handled))
            if is_dead or not was_open:
                # The node that has to act may first have to become the controller.
                await asyncio.sleep(self._retry_seconds)

    async def _until_closed(self, broker: BrokerState) -> bool:
        """True if an established connection was closed; False if none could be made."""
        try:
            reader, writer = await self._connect(broker)
        except OSError:
            return False
        self._refusing.discard(broker.id)
        try:
            while not await self._is_closed_soon(reader):
                # The new one first: there is no moment without.
                try:
                    reader, renewed = await self._connect(broker)
                except OSError:
                    return True
                writer.close()
                writer = renewed
        finally:
            writer.close()
        return True

    async def _is_closed_soon(self, reader: asyncio.StreamReader) -> bool:
        """False if the connection still stands when it is time to replace it."""
        try:
            async with asyncio.timeout(self._renew_seconds):
                # A node sends nothing unasked: this ends with the connection.
                while await reader.read(1):
                    pass
        except TimeoutError:
            return False
        except OSError:
            pass
        return True

    async def _refuses(self, broker: BrokerState) -> bool:
        for number in range(PROBES):
            if number:
                await asyncio.sleep(self._pause_seconds)
            try:
                _, writer = await self._connect(broker)
            except ConnectionRefusedError:
                self._refusing.add(broker.id)
                continue
            except OSError:
                return False
            writer.close()
            self._refusing.discard(broker.id)
            return False
        return True

    async def _connect(
        self, broker: BrokerState
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        # A node announces the listener between nodes first.
        endpoint = broker.endpoints[0]
        return await asyncio.open_connection(endpoint.host, endpoint.port)
