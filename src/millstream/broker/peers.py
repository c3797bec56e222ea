"""Requests to other nodes of the cluster, on connections that are kept for the next one."""

import logging
from collections.abc import Callable
from typing import Final

from millstream.replication.link import Link, LinkFailed
from millstream.wire.messages import Struct

log = logging.getLogger(__name__)

# Kept per node; more are made when more requests are under way at once, and closed after.
_IDLE_MAX: Final = 2
_CONNECT_SECONDS_MAX: Final = 5.0


class Peers:
    def __init__(self, broker_id: int, address: Callable[[int], tuple[str, int] | None]) -> None:
        self._client_id = f"node-{broker_id}"
        self._address = address
        self._idle: dict[tuple[str, int], list[Link]] = {}

    async def ask(
        self, broker_id: int, api_key: int, version: int, body: Struct, *, timeout_seconds: float
    ) -> Struct:
        """Raises LinkFailed."""
        address = self._address(broker_id)
        if address is None:
            raise LinkFailed(f"the address of node {broker_id} is not known")
        kept = self._idle.get(address)
        if kept:
            link = kept.pop()
            try:
                return await self._ask(link, address, api_key, version, body, timeout_seconds)
            except LinkFailed as error:
                # It may have been closed while nobody used it: a new one tells for sure.
                log.debug("node %d, kept connection: %s", broker_id, error)
        host, port = address
        link = await Link.connect(
            host, port, client_id=self._client_id, timeout_seconds=_CONNECT_SECONDS_MAX
        )
        return await self._ask(link, address, api_key, version, body, timeout_seconds)

    async def _ask(
        self,
        link: Link,
        address: tuple[str, int],
        api_key: int,
        version: int,
        body: Struct,
        timeout_seconds: float,
    ) -> Struct:
        try:
            answer = await link.ask(api_key, version, body, timeout_seconds=timeout_seconds)
        except BaseException:
            link.close()
            raise
        kept = self._idle.setdefault(address, [])
        if len(kept) < _IDLE_MAX:
            kept.append(link)
        else:
            link.close()
        return answer

    def close(self) -> None:
        for links in self._idle.values():
            for link in links:
                link.close()
        self._idle.clear()
