"""Serves a console with uvicorn inside the running loop."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import uvicorn
from starlette.types import ASGIApp

from millstream.broker.broker import Broker
from millstream.client.security import PLAINTEXT, Security
from millstream.clock import Clock, SystemClock
from millstream.console.app import make_app, open_app
from millstream.console.asking import Address, ClusterClient
from millstream.console.console import Console
from millstream.console.local_reading import LocalReader
from millstream.console.login import LoginGate, Logins, NewConsole
from millstream.console.node import LocalNode
from millstream.console.safety import Guard, is_loopback
from millstream.console.sampling import Sampler
from millstream.errors import StartError
from millstream.registry.prompt_requests import PromptRequests

if TYPE_CHECKING:
    from millstream.console.schemas import Schemas

log = logging.getLogger(__name__)

_STOP_SECONDS_MAX: Final = 3
# Browsers open six connections each; more than this is not people.
_CONNECTIONS_MAX: Final = 500


class Site(Protocol):
    """What a server serves: a console for everyone, or one for each who logs in."""

    @property
    def needs_login(self) -> bool: ...

    def app(self, names: list[str], *, has_tls: bool) -> ASGIApp: ...
    def start(self) -> None: ...

    async def stop(self) -> None:
        """Before the server stops."""
        ...

    def close(self) -> None:
        """After that."""
        ...


class OpenSite:
    """One console, for everyone who reaches it."""

    needs_login = False

    def __init__(self, console: Console) -> None:
        self.console = console

    def app(self, names: list[str], *, has_tls: bool) -> ASGIApp:
        return make_app(self.console, names)

    def start(self) -> None:
        self.console.start()

    async def stop(self) -> None:
        await self.console.stop()

    def close(self) -> None:
        self.console.close()


class LoginSite:
    """A console for each user, after a login with that user's name and password."""

    needs_login = True

    def __init__(self, new_console: NewConsole, clock: Clock) -> None:
        self._new_console = new_console
        self._clock = clock
        self._logins: Logins | None = None

    def app(self, names: list[str], *, has_tls: bool) -> ASGIApp:
        self._logins = Logins(
            self._new_console, lambda console: make_app(console, names), self._clock
        )
        gate = LoginGate(self._logins, open_app(), has_tls=has_tls)
        return Guard(gate, names=names)

    def start(self) -> None:
        """Sessions begin with a login."""

    async def stop(self) -> None:
        if self._logins is not None:
            await self._logins.close_all()

    def close(self) -> None:
        """Every session has been closed."""


class ConsoleServer:
    """`await start()` serves until `await stop()`."""

    def __init__(
        self,
        site: Site,
        listen: Address,
        *,
        node: LocalNode | None = None,
        certificate: Path | None = None,
    ) -> None:
        """`certificate` is a PEM file with the chain and the key: the server speaks HTTPS."""
        self.site = site
        self._listen = listen
        self._node = node
        self._certificate = certificate
        self._socket: socket.socket | None = None
        self._server: uvicorn.Server | None = None
        self._serving: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        assert self._socket is not None, "not started"
        host, port = self._socket.getsockname()[:2]
        scheme = "http" if self._certificate is None else "https"
        return f"{scheme}://{Address(host, port)}"

    async def start(self) -> None:
        """Raises StartError."""
        has_tls = self._certificate is not None
        _check_exposure(self._listen, needs_login=self.site.needs_login, has_tls=has_tls)
        self._socket = _bind(self._listen)
        config = uvicorn.Config(
            self.site.app(_names(self._listen.host), has_tls=has_tls),
            http=PromptRequests,
            lifespan="off",
            log_config=None,
            access_log=False,
            ws="none",
            server_header=False,
            limit_concurrency=_CONNECTIONS_MAX,
            timeout_graceful_shutdown=_STOP_SECONDS_MAX,
            ssl_certfile=self._certificate,
        )
        _load(config, self._certificate)
        self._server = _SilentServer(config)
        self.site.start()
        if self._node is not None:
            self._node.start()
        serving = self._server.serve(sockets=[self._socket])
        self._serving = asyncio.get_running_loop().create_task(serving)

    async def stop(self) -> None:
        await self.site.stop()
        if self._node is not None:
            await self._node.stop()
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await self._serving
        self.site.close()


class _SilentServer(uvicorn.Server):
    """The process's signals belong to the node, or to the command."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _load(config: uvicorn.Config, certificate: Path | None) -> None:
    try:
        config.load()
    except (OSError, ssl.SSLError) as problem:
        raise StartError(f"the console cannot use certificate {certificate}: {problem}") from None


def _check_exposure(listen: Address, *, needs_login: bool, has_tls: bool) -> None:
    """Raises StartError for an address that others could reach without a login, or where they
    could read the password of one."""
    if is_loopback(listen.host):
        return
    if not needs_login:
        raise StartError(
            f"without a login the console listens on this machine only, not on {listen.host}. "
            "Let users log in (--login; --console-login of a node), or use "
            f"127.0.0.1:{listen.port} through ssh -L"
        )
    if not has_tls:
        raise StartError(
            f"passwords would cross the network in the clear to {listen.host}. Serve HTTPS "
            "(--certificate; --console-certificate of a node), or listen on "
            f"127.0.0.1:{listen.port} behind a proxy that does"
        )


def _names(host: str) -> list[str]:
    """What the console may be called beside localhost: on all addresses, any name of this
    machine."""
    if host in ("", "0.0.0.0", "::"):
        return [socket.gethostname(), socket.getfqdn(), *_own_addresses()]
    return [host]


def _own_addresses() -> set[str]:
    try:
        return {str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None)}
    except socket.gaierror:
        return set()


def _bind(listen: Address) -> socket.socket:
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
    login: bool = False,
    certificate: Path | None = None,
    registry_url: str | None = None,
) -> ConsoleServer:
    """A console in the process of a node that has started. It asks through the node's first
    listener, like any client, so a slow page never gets ahead of them."""
    endpoint = broker.endpoints[0]
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(endpoint.host, endpoint.host)
    own = Address(host, endpoint.port)
    used_clock = clock or SystemClock()
    node = LocalNode(broker)
    reader = LocalReader(broker)
    schemas = _schemas(registry_url, used_clock)

    def new_console(security: Security, user: str | None = None) -> Console:
        client = ClusterClient([own], security, own=(broker.node.node_id, own))
        return Console(
            client,
            Sampler(client, used_clock, node.counters, reader if user is None else None),
            used_clock,
            node=node,
            is_read_only=is_read_only,
            pipeline_home=pipeline_home,
            user=user,
            schemas=schemas,
        )

    site = _site(new_console, security, used_clock, login=login)
    return ConsoleServer(site, listen, node=node, certificate=certificate)


def console_of_cluster(
    bootstrap: list[Address],
    listen: Address,
    *,
    clock: Clock | None = None,
    security: Security = PLAINTEXT,
    is_read_only: bool = False,
    pipeline_home: Path | None = None,
    login: bool = False,
    certificate: Path | None = None,
    registry_url: str | None = None,
) -> ConsoleServer:
    """A console alone, for any Kafka cluster."""
    used_clock = clock or SystemClock()
    schemas = _schemas(registry_url, used_clock)

    def new_console(security: Security, user: str | None = None) -> Console:
        client = ClusterClient(bootstrap, security)
        return Console(
            client,
            Sampler(client, used_clock),
            used_clock,
            is_read_only=is_read_only,
            pipeline_home=pipeline_home,
            user=user,
            schemas=schemas,
        )

    site = _site(new_console, security, used_clock, login=login)
    return ConsoleServer(site, listen, certificate=certificate)


def _schemas(registry_url: str | None, clock: Clock) -> "Schemas | None":
    """Raises StartError for what is not a URL."""
    if registry_url is None:
        return None
    from millstream.console.schemas import Schemas

    try:
        return Schemas(registry_url, clock)
    except ValueError as wrong:
        raise StartError(f"the console's schema registry: {wrong}") from None


def _site(
    new_console: Callable[[Security, str | None], Console],
    security: Security,
    clock: Clock,
    *,
    login: bool,
) -> Site:
    """With `login`, each user who logs in provides the name and password of `security`."""
    if not login:
        return OpenSite(new_console(security, None))

    def as_user(user: str, password: str) -> Console:
        credentials = replace(
            security.credentials, username=user, password=password, is_token=False
        )
        return new_console(replace(security, credentials=credentials), user)

    return LoginSite(as_user, clock)
