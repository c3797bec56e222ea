"""Requests to the nodes of any Kafka cluster, from the console's event loop.

A few connections per node, opened when first asked, each with one request at a time. Versions
are negotiated, so the cluster may be Apache Kafka's. Answers have their own memory.
"""

import asyncio
from dataclasses import dataclass
from typing import Final, TypeVar

from millstream import __version__
from millstream.client.aio import Connection, NoAnswer
from millstream.client.protocol import (
    NEWEST,
    VERSIONS_REQUEST,
    VERSIONS_TRIED,
    Versions,
    read_versions,
)
from millstream.client.security import PLAINTEXT, Security, SecurityError
from millstream.errors import KafkaCode, ProtocolError
from millstream.wire.apis.describe_cluster import DescribeClusterRequest
from millstream.wire.apis.find_coordinator import FindCoordinatorRequest
from millstream.wire.codec import request_writer, response_reader
from millstream.wire.message import Message, Request

M = TypeVar("M", bound=Message)

CLIENT_ID: Final = f"millstream-console/{__version__}"
_CONNECT_SECONDS_MAX: Final = 5.0
_ANSWER_SECONDS_MAX: Final = 20.0
# Pages ask side by side; more would only queue in the node.
_CONNECTIONS_PER_NODE_MAX: Final = 4
# The newest that names one group per request.
_FIND_COORDINATOR_VERSION: Final = 3
# The first group of a cluster creates an internal topic.
_COORDINATOR_PAUSES_SECONDS: Final = (0.1, 0.2, 0.5, 1.0, 1.0, 2.0, 3.0)


class AskFailed(Exception):
    """The cluster did not answer, or answered with an error. The text says which."""

    def __init__(self, text: str, code: int = KafkaCode.UNKNOWN_SERVER_ERROR) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(slots=True)
class _Link:
    connection: Connection
    versions: Versions


class _Node:
    """The connections to one node."""

    def __init__(self) -> None:
        self.idle: list[_Link] = []
        self.places = asyncio.Semaphore(_CONNECTIONS_PER_NODE_MAX)


class ClusterClient:
    def __init__(
        self,
        bootstrap: list[Address],
        security: Security = PLAINTEXT,
        *,
        own: tuple[int, Address] | None = None,
    ) -> None:
        """`own` is the node in this process: always reached there, whatever it advertises."""
        self.bootstrap = bootstrap
        self._security = security
        self._own = own
        self._addresses: dict[int, Address] = {}
        self._nodes: dict[Address, _Node] = {}

    def learn(self, addresses: dict[int, Address]) -> None:
        """Where the nodes are, as a metadata answer says."""
        if self._own is not None:
            addresses = {**addresses, self._own[0]: self._own[1]}
        for gone in set(self._nodes) - set(addresses.values()) - set(self.bootstrap):
            self._close(self._nodes.pop(gone))
        self._addresses = addresses

    async def ask_any(self, request: Request[M], newest: int = NEWEST) -> M:
        """Ask whichever node answers: first the one of this process, then the others."""
        problem: AskFailed | None = None
        for address in dict.fromkeys([*self.bootstrap, *self._addresses.values()]):
            try:
                return await self._ask(address, request, newest, _ANSWER_SECONDS_MAX)
            except AskFailed as failed:
                problem = failed
        raise problem or AskFailed("no node is known")

    async def ask(
        self,
        node_id: int,
        request: Request[M],
        newest: int = NEWEST,
        *,
        timeout_seconds: float = _ANSWER_SECONDS_MAX,
    ) -> M:
        address = await self._address(node_id)
        return await self._ask(address, request, newest, timeout_seconds)

    async def _address(self, node_id: int) -> Address:
        if node_id not in self._addresses:
            request = DescribeClusterRequest(include_cluster_authorized_operations=False)
            found = await self.ask_any(request, 0)
            self.learn({one.broker_id: Address(one.host, one.port) for one in found.brokers})
        if node_id not in self._addresses:
            raise AskFailed(f"node {node_id} is not alive", KafkaCode.BROKER_NOT_AVAILABLE)
        return self._addresses[node_id]

    async def coordinator(self, key: str, *, of_transactions: bool = False) -> int:
        """Waits a moment while the cluster chooses one. Raises AskFailed."""
        request = FindCoordinatorRequest(key=key, key_type=int(of_transactions))
        for pause in (*_COORDINATOR_PAUSES_SECONDS, None):
            found = await self.ask_any(request, _FIND_COORDINATOR_VERSION)
            if found.error_code != KafkaCode.COORDINATOR_NOT_AVAILABLE or pause is None:
                break
            await asyncio.sleep(pause)
        check(found.error_code, f"coordinator of {key}", found.error_message)
        if found.node_id not in self._addresses:
            self._addresses[found.node_id] = Address(found.host, found.port)
        return found.node_id

    async def _ask(
        self, address: Address, request: Request[M], newest: int, timeout_seconds: float
    ) -> M:
        node = self._nodes.setdefault(address, _Node())
        async with node.places:
            try:
                # One that the node has closed meanwhile fails at once: the next is new.
                while node.idle:
                    link = node.idle.pop()
                    try:
                        return await self._ask_on(node, link, request, newest, timeout_seconds)
                    except NoAnswer as failed:
                        if "closed" not in str(failed):
                            raise
                link = await self._open(address)
                return await self._ask_on(node, link, request, newest, timeout_seconds)
            except (NoAnswer, ProtocolError) as failed:
                raise AskFailed(f"{address}: {failed}", _code_of(failed)) from failed

    async def _ask_on(
        self, node: _Node, link: _Link, request: Request[M], newest: int, timeout_seconds: float
    ) -> M:
        try:
            version = link.versions.newest(request.api, newest)
            if version < 0:
                name = request.api.name
                raise UnsupportedRequest(f"this cluster does not offer {name}")
            frame = link.connection.begin(request.api, version)
            request_writer(type(request), version)(frame, request)
            cursor = await link.connection.exchange(frame, timeout_seconds=timeout_seconds)
            answer = response_reader(type(request), version)(cursor)
        except UnsupportedRequest:
            node.idle.append(link)
            raise
        except BaseException:
            link.connection.close()
            raise
        node.idle.append(link)
        return answer

    async def _open(self, address: Address) -> _Link:
        connection = await Connection.open(
            address.host,
            address.port,
            client_id=CLIENT_ID,
            timeout_seconds=_CONNECT_SECONDS_MAX,
            security=self._security,
        )
        try:
            for version in VERSIONS_TRIED:
                frame = connection.begin(VERSIONS_REQUEST.api, version)
                request_writer(type(VERSIONS_REQUEST), version)(frame, VERSIONS_REQUEST)
                cursor = await connection.exchange(frame, timeout_seconds=_ANSWER_SECONDS_MAX)
                versions = read_versions(cursor, version)
                if versions is not None:
                    return _Link(connection, versions)
        except BaseException:
            connection.close()
            raise
        connection.close()
        raise NoAnswer("the node does not say what it offers")

    @staticmethod
    def _close(node: _Node) -> None:
        while node.idle:
            node.idle.pop().connection.close()

    def close(self) -> None:
        for node in self._nodes.values():
            self._close(node)


def _code_of(failed: NoAnswer | ProtocolError) -> KafkaCode:
    cause = failed.__cause__
    if isinstance(cause, SecurityError) and cause.error_class == "AUTHENTICATION_FAILED":
        return KafkaCode.SASL_AUTHENTICATION_FAILED
    return KafkaCode.NETWORK_EXCEPTION


class UnsupportedRequest(AskFailed):
    """The cluster has no such API: it is another software, or an older version."""

    def __init__(self, text: str) -> None:
        super().__init__(text, KafkaCode.UNSUPPORTED_VERSION)


def check(code: int, subject: str, message: str | None = None) -> None:
    """Raises AskFailed for an error code."""
    if code != KafkaCode.NONE:
        name = error_name(code)
        raise AskFailed(f"{subject}: {message} ({name})" if message else f"{subject}: {name}", code)


def error_name(code: int) -> str:
    try:
        return KafkaCode(code).name
    except ValueError:
        return f"error {code}"


def parse_address(text: str, default_port: int = 9092) -> Address:
    """`HOST:PORT`, `HOST` or `[IPV6]:PORT`. Raises ValueError."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text.strip(), str(default_port)
    if not port.isdigit() or int(port) > 65535 or not host:
        raise ValueError(f"{text!r} is not HOST:PORT")
    return Address(host.strip("[]"), int(port))
