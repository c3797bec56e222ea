"""Serves an instance of the registry with uvicorn inside the running loop."""

import asyncio
import contextlib
import ipaddress
import logging
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import uvicorn

from millstream.registry.election import Identity, identity_of
from millstream.registry.prompt_requests import PromptRequests
from millstream.registry.registry import SchemaRegistry
from millstream.registry.rest import make_app
from millstream.registry.sockets import local_url
from millstream.registry.users import Users
from millstream.security.browsers import LOCAL_NAMES

log = logging.getLogger(__name__)

_STOP_SECONDS_MAX: Final = 3
# Clients keep connections open, one or a few each.
_CONNECTIONS_MAX: Final = 2_000
_ANY_ADDRESS: Final = ("0.0.0.0", "::")


@dataclass(frozen=True, slots=True)
class Guard:
    """To whom an instance answers, and how it speaks to others."""

    # Everybody without it.
    users: Users | None = None
    tls: ssl.SSLContext | None = None
    # For connections to a leader that speaks TLS; the system's certificates without it.
    trust: ssl.SSLContext | None = None

    @property
    def scheme(self) -> str:
        return "http" if self.tls is None else "https"


OPEN: Final = Guard()


class RegistryServer:
    """`await start()` serves on a socket that listens, until `await stop()`."""

    def __init__(
        self,
        registry: SchemaRegistry,
        bound: socket.socket,
        *,
        guard: Guard = OPEN,
        advertised_url: str | None = None,
    ) -> None:
        """Other instances reach this one at `advertised_url`, by default where it listens."""
        self._registry = registry
        self._socket = bound
        self._guard = guard
        self._own = _identity(bound, guard.scheme, advertised_url)
        self._server: uvicorn.Server | None = None
        self._serving: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """For clients on this machine."""
        return local_url(self._socket, self._guard.scheme)

    async def start(self) -> None:
        """Raises StartError."""
        try:
            await self._registry.start(self._own)
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

    def _names(self) -> frozenset[str] | None:
        """By which clients may call it. None for any: where others reach it, their names for this
        machine are not known, and with users the browser of one does not log in for a page that
        has taken another name."""
        host = self._socket.getsockname()[0]
        if self._guard.users is not None or not ipaddress.ip_address(host).is_loopback:
            return None
        return LOCAL_NAMES | {host, self._own.host.lower()}

    def _config(self) -> uvicorn.Config:
        config = uvicorn.Config(
            make_app(
                self._registry,
                users=self._guard.users,
                trust=self._guard.trust,
                names=self._names(),
            ),
            http=PromptRequests,
            lifespan="off",
            log_config=None,
            access_log=False,
            ws="none",
            server_header=False,
            limit_concurrency=_CONNECTIONS_MAX,
            timeout_graceful_shutdown=_STOP_SECONDS_MAX,
        )
        # What it says about itself is said already.
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
        config.load()
        config.ssl = self._guard.tls
        return config


def _identity(bound: socket.socket, scheme: str, advertised_url: str | None) -> Identity:
    """Raises ValueError for a URL that is none."""
    if advertised_url is not None:
        return identity_of(advertised_url)
    host, port = bound.getsockname()[:2]
    return Identity(socket.getfqdn() if host in _ANY_ADDRESS else host, port, scheme)


class _SilentServer(uvicorn.Server):
    """The process's signals belong to the command, or to the node."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
