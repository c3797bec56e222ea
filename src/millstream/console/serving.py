"""Serves a console with uvicorn inside the running loop."""

import asyncio
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import uvicorn

from millstream.broker.broker import Broker
from millstream.client.security import PLAINTEXT, Security
from millstream.clock import Clock, SystemClock
from millstream.console.app import make_app
from millstream.console.asking import Address, ClusterClient
from millstream.console.console import Console
from millstream.console.local_reading import LocalReader
from millstream.console.node import LocalNode
from millstream.console.safety import is_loopback
from millstream.console.sampling import Sampler
from millstream.errors import StartError

log = logging.getLogger(__name__)

_STOP_SECONDS_MAX: Final = 3
# Browsers open six connections each; more than this is not people.
_CONNECTIONS_MAX: Final = 500


class ConsoleServer:
    """`await start()` serves until `await stop()`."""

    def __init__(self, console: Console, listen: Address) -> None:
        self.console = console
        self._listen = listen
        self._socket: socket.socket | None = None
        self._server: uvicorn.Server | None = None
        self._serving: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        assert self._socket is not None, "not started"
        host, port = self._socket.getsockname()[:2]
        return f"http://{Address(host, port)}"

    async def start(self) -> None:
        """Raises StartError."""
        self._socket = _bind(self._listen)
        config = uvicorn.Config(
            make_app(self.console, [self._listen.host]),
            lifespan="off",
            log_config=None,
            access_log=False,
            ws="none",
            server_header=False,
            limit_concurrency=_CONNECTIONS_MAX,
            timeout_graceful_shutdown=_STOP_SECONDS_MAX,
        )
        self._server = _SilentServer(config)
        self.console.sampler.start()
        if self.console.node is not None:
            self.console.node.start()
        serving = self._server.serve(sockets=[self._socket])
        self._serving = asyncio.get_running_loop().create_task(serving)

    async def stop(self) -> None:
        self.console.stopping.set()
        await self.console.sampler.stop()
        if self.console.node is not None:
            await self.console.node.stop()
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await self._serving
        self.console.client.close()


class _SilentServer(uvicorn.Server):
    """The process's signals belong to the node, or to the command."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _bind(listen: Address) -> socket.socket:
    if not is_loopback(listen.host):
        raise StartError(
            f"the console has no login, so it listens on this machine only, not on {listen.host}. "
            f"Use 127.0.0.1:{listen.port}, and reach it through ssh -L or a proxy that has a login"
        )
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((listen.host, listen.port))
        # From here on connections wait until they are accepted.
        bound.listen()
    except OSError as error:
        bound.close()
        raise StartError(f"the console cannot listen on {listen}: {error.strerror}") from None
    bound.setblocking(False)
    return bound


def console_of_node(
    broker: Broker,
    listen: Address,
    *,
    clock: Clock | None = None,
    security: Security = PLAINTEXT,
    is_read_only: bool = False,
    pipeline_home: Path | None = None,
) -> ConsoleServer:
    """A console in the process of a node that has started. It asks through the node's first
    listener, like any client, so a slow page never gets ahead of them."""
    endpoint = broker.endpoints[0]
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(endpoint.host, endpoint.host)
    own = Address(host, endpoint.port)
    client = ClusterClient([own], security, own=(broker.node.node_id, own))
    used_clock = clock or SystemClock()
    node = LocalNode(broker)
    sampler = Sampler(client, used_clock, node.counters, LocalReader(broker))
    console = Console(
        client,
        sampler,
        used_clock,
        node=node,
        is_read_only=is_read_only,
        pipeline_home=pipeline_home,
    )
    return ConsoleServer(console, listen)


def console_of_cluster(
    bootstrap: list[Address],
    listen: Address,
    *,
    clock: Clock | None = None,
    security: Security = PLAINTEXT,
    is_read_only: bool = False,
    pipeline_home: Path | None = None,
) -> ConsoleServer:
    """A console alone, for any Kafka cluster."""
    client = ClusterClient(bootstrap, security)
    used_clock = clock or SystemClock()
    sampler = Sampler(client, used_clock)
    console = Console(
        client, sampler, used_clock, is_read_only=is_read_only, pipeline_home=pipeline_home
    )
    return ConsoleServer(console, listen)
