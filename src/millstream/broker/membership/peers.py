"""Requests to other nodes of the cluster, on connections that are kept for reuse."""

import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from millstream.client.aio import AnswerTimedOut, Connection, NoAnswer
from millstream.client.security import PLAINTEXT, Security
from millstream.wire.message import Message, Request

log = logging.getLogger(__name__)

# Kept per node. If more requests are in flight at once, extra connections are opened and closed.
_IDLE_MAX: Final = 2
_CONNECT_SECONDS_MAX: Final = 5.0

Address = tuple[str, int]
Prove = Callable[[Connection], Awaitable[None]]
M = TypeVar("M", bound=Message)


class Peers:
    def __init__(
        self,
        broker_id: int,
        address: Callable[[int], Address | None],
        prove: Prove,
        security: Callable[[], Security] = lambda: PLAINTEXT,
    ) -> None:
        """`prove` has the other end of a new connection know this node."""
        self._prove = prove
        self._security = security
        self._client_id = f"node-{broker_id}"
        self._address = address
        self._idle: dict[int, list[Connection]] = {}
        # The address that each node's kept connections lead to.
        self._addresses: dict[int, Address] = {}
        self._is_closed = False

    async def ask(
        self,
        broker_id: int,
        request: Request[M],
        version: int,
        *,
        timeout_seconds: float,
        address: Address | None = None,
    ) -> M:
        """`address` is where the node is said to be, instead of where the image has it. Raises
        NoAnswer."""
        address = address or self._address(broker_id)
        if address is None:
            raise NoAnswer(f"the address of node {broker_id} is not known")
        if self._addresses.get(broker_id) != address:
            # The node has restarted under another address.
            self._drop(broker_id)
            self._addresses[broker_id] = address
        kept = self._idle.get(broker_id)
        if kept:
            connection = kept.pop()
            try:
                return await self._ask(
                    connection, broker_id, address, request, version, timeout_seconds
                )
            except AnswerTimedOut:
                raise
            except NoAnswer as error:
                # The peer may have closed it while it was idle; only a new one shows.
                log.debug("node %d, kept connection: %s", broker_id, error)
        host, port = address
        connection = await Connection.open(
            host,
            port,
            client_id=self._client_id,
            timeout_seconds=_CONNECT_SECONDS_MAX,
            security=self._security(),
        )
        try:
            await self._prove(connection)
        except BaseException:
            connection.close()
            raise
        return await self._ask(connection, broker_id, address, request, version, timeout_seconds)

    async def _ask(
        self,
        connection: Connection,
        broker_id: int,
        address: Address,
        request: Request[M],
        version: int,
        timeout_seconds: float,
    ) -> M:
        try:
            answer = await connection.ask(request, version, timeout_seconds=timeout_seconds)
        except BaseException:
            connection.close()
            raise
        kept = self._idle.setdefault(broker_id, [])
        # Since the connection was made, another request may have found the node elsewhere.
        is_current = address == self._addresses.get(broker_id) and not self._is_closed
        if is_current and len(kept) < _IDLE_MAX:
            kept.append(connection)
        else:
            connection.close()
        return answer

    def _drop(self, broker_id: int) -> None:
        for connection in self._idle.pop(broker_id, []):
            connection.close()

    def close(self) -> None:
        """Requests in flight may finish; their connections are not kept."""
        self._is_closed = True
        for broker_id in list(self._idle):
            self._drop(broker_id)
