"""Serves an instance of the registry with uvicorn inside the running loop."""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import uvicorn

from millstream.errors import StartError
from millstream.registry.election import Identity, identity_of
from millstream.registry.registry import SchemaRegistry
from millstream.registry.rest import make_app
from millstream.registry.users import Users

log = logging.getLogger(__name__)

_STOP_SECONDS_MAX: Final = 3
# Clients keep connections open, one or a few each.
_CONNECTIONS_MAX: Final = 2_000
_ANY_ADDRESS: Final = ("", "0.0.0.0", "::")


@dataclass(frozen=True, slots=True)
class Listening:
    """Where to serve, to whom, and how others reach it: by default at that address."""

    host: str
    port: int
    advertised_url: str | None = None
    users: Users | None = None
    tls: ssl.SSLContext | None = None
    # For connections to a leader that speaks TLS.
    trust: ssl.SSLContext | None = None


class RegistryServer:
    """`await start()` serves until `await stop()`."""

    def __init__(self, registry: SchemaRegistry, listening: Listening) -> None:
        self._registry = registry
        self._listening = listening
        self._socket: socket.socket | None = None
        self._server: uvicorn.Server | None = None
        self._serving: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """For clients on this machine."""
        assert self._socket is not None, "not started"
        host, port = self._socket.getsockname()[:2]
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        return Identity(host, port, self._scheme).url

    @property
    def _scheme(self) -> str:
        return "http" if self._listening.tls is None else "https"

    async def start(self) -> None:
        """Serves when this returns. Raises StartError."""
        self._socket = _bind(self._listening.host, self._listening.port)
        try:
            await self._registry.start(self._identity())
        except BaseException:
            self._socket.close()
            await self._registry.stop()
            raise
        self._server = _SilentServer(self._config())
        serving = self._server.serve(sockets=[self._socket])
        self._serving = asyncio.get_running_loop().create_task(serving)

    async def stop(self) -> None:
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await self._serving
        await self._registry.stop()

    def _config(self) -> uvicorn.Config:
        listening = self._listening
        config = uvicorn.Config(
            make_app(self._registry, users=listening.users, trust=listening.trust),
            lifespan="off",
            log_config=None,
            access_log=False,
            ws="none",
            server_header=False,
            limit_concurrency=_CONNECTIONS_MAX,
            timeout_graceful_shutdown=_STOP_SECONDS_MAX,
        )
        config.load()
        config.ssl = listening.tls
        return config

    def _identity(self) -> Identity:
        assert self._socket is not None
        host, port = self._socket.getsockname()[:2]
        if self._listening.advertised_url is not None:
            return identity_of(self._listening.advertised_url)
        if self._listening.host in _ANY_ADDRESS:
            host = socket.getfqdn()
        return Identity(host, port, self._scheme)


class _SilentServer(uvicorn.Server):
    """The process's signals belong to the command, or to the node."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        # From here on connections wait until they are accepted.
        bound.listen()
    except OSError as error:
        bound.close()
        raise StartError(f"the registry cannot listen on {host}:{port}: {error.strerror}") from None
    bound.setblocking(False)
    return bound
